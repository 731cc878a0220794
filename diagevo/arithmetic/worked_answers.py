"""SPICE's questions in the arithmetic world: a document is a worked line, and its question comes with the
steps to its answer."""

import re
from collections.abc import Iterator
from random import Random

from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic.corpus import WARM, reordered, worked_line
from diagevo.arithmetic.doing import do_all
from diagevo.arithmetic.grammar import FAMILIES, word, write_solution
from diagevo.arithmetic.heldout import draw_seen
from diagevo.memory.events import InvalidReason
from diagevo.methods.answered_questions import AnsweredQuestion
from diagevo.methods.document_corpus import SourceDocument
from diagevo.methods.document_questions import AnswerKind
from diagevo.sampling.sampler import Message, Prompt
from diagevo.selfplay.questions import parse_question


class WorkedAnswers:
    """`AnsweredQuestions` in the model's closed vocabulary. Every answer is an integer."""

    def digests(self) -> dict[str, str]:
        return {}

    def kind(self, document: SourceDocument, rng: Random) -> AnswerKind:
        return "integer"

    def asks(self, document: str, kind: AnswerKind) -> Prompt:
        return [{"role": "user", "content": f"ask a question with the result : {document}"}]

    def read(self, completion: str, kind: AnswerKind) -> AnsweredQuestion | InvalidReason:
        if (question := parse_question(completion)) is None:
            return "unreadable"
        answer = extract_boxed(completion)
        if answer is None or re.fullmatch(r"-?\d{1,100}", answer) is None:
            return "unanswered"
        return AnsweredQuestion(question, answer)


def answered_turns(seed: int, count: int, scale: float = WARM) -> Iterator[list[Message]]:
    """Chat turns of both roles in turn. The challenger's question has the document's numbers, and then the
    document's steps; or half of the time another order of them, and then its steps, as the solver's, have
    mistakes at `scale` times their chances. Nothing is of the held-out zone."""
    rng, world = Random(f"{seed} answers"), WorkedAnswers()
    for number in range(count):
        part = draw_seen(rng, rng.choice(list(FAMILIES)))
        asked = part if number % 4 == 1 else reordered(rng, part) or part
        question = word(asked, rng.randrange(len(FAMILIES[asked.family].wordings)))
        seen = number % 2 and asked == part
        solved = write_solution(*do_all(rng, (asked,), 0.0 if seen else scale))
        if number % 2:
            prompt = world.asks(worked_line(part), "integer")
            # No space before the steps: the small model knows `r55` without one alone.
            yield [*prompt, {"role": "assistant", "content": f"<question> {question} </question>{solved}"}]
        else:
            yield [{"role": "user", "content": question}, {"role": "assistant", "content": solved}]
