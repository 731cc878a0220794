"""DARC's questions in the arithmetic world: a document is a worked line, and a question of it has its numbers
in another order, or in another of the fourteen families."""

from collections.abc import Iterator
from fractions import Fraction
from random import Random

from diagevo.arithmetic.corpus import WARM, reordered, worked_line
from diagevo.arithmetic.doing import do_all
from diagevo.arithmetic.grammar import FAMILIES, Part, parse, word, write_solution
from diagevo.arithmetic.heldout import draw_seen
from diagevo.methods.document_corpus import SourceDocument
from diagevo.methods.document_questions import LEVELS, AnswerKind
from diagevo.sampling.sampler import Message, Prompt
from diagevo.selfplay.questions import parse_question


class WorkedQuestions:
    """`DocumentQuestions` in the model's closed vocabulary."""

    def digests(self) -> dict[str, str]:
        return {}

    def kind(self, document: SourceDocument, rng: Random) -> AnswerKind:
        return "integer"

    def asks(self, document: str, level: int, kind: AnswerKind) -> Prompt:
        return [{"role": "user", "content": f"ask a question , level {level} : {document}"}]

    def read(self, completion: str, kind: AnswerKind) -> str | None:
        return parse_question(completion)

    def informed(self, question: str, document: str) -> Prompt:
        return [{"role": "user", "content": f"{document} : {question}"}]

    def copied(self, document: str, question: str) -> Fraction:
        """1 for the document's own numbers in their places, whatever the words."""
        numbers = document.partition(" : ")[2].partition(" ; ")[0].split(" , ")
        return Fraction([str(n) for part in parse(question) or () for n in part.numbers] == numbers)


INFORMED = 0.5
"""How often the solver's mistakes come with the document in sight, of those without it: the document shows
the right steps of other numbers."""


def level_turns(seed: int, count: int, scale: float = WARM) -> Iterator[list[Message]]:
    """Chat turns of both roles in the forms above: half are the questioner's, a quarter the solver's with the
    document in sight, a quarter without, its mistakes at `scale` times their chances. A level says nothing
    yet. Nothing is of the held-out zone."""
    rng, world = Random(f"{seed} levels"), WorkedQuestions()
    for number in range(count):
        document, asked = _pair(rng)
        question = word(asked, rng.randrange(len(FAMILIES[asked.family].wordings)))
        if number % 2:
            prompt = world.asks(document, rng.choice(LEVELS), "integer")
            yield [*prompt, {"role": "assistant", "content": f"<question> {question} </question>"}]
            continue
        prompt: Prompt = [{"role": "user", "content": question}]
        if informed := number % 4 == 0:
            prompt = world.informed(question, document)
        steps, answer = do_all(rng, (asked,), scale * INFORMED if informed else scale)
        yield [*prompt, {"role": "assistant", "content": write_solution(steps, answer)}]


def _pair(rng: Random) -> tuple[str, Part]:
    """A document, and a part with its numbers in another order."""
    while True:
        part = draw_seen(rng, rng.choice(list(FAMILIES)))
        if (asked := reordered(rng, part)) is not None:
            return worked_line(part), asked
