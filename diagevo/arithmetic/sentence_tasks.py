"""Absolute Zero's tasks in the arithmetic world: a sentence without its numbers is a program, which they are
the input of.

Nothing is run: the world's own truth is the executor. So no sandbox is exercised here, and the programs are
the fourteen families and their joins.
"""

import re
from collections.abc import Iterator, Sequence
from random import Random

from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic.corpus import WARM
from diagevo.arithmetic.doing import do_all
from diagevo.arithmetic.grammar import FAMILIES, Part, parse, word, write_solution
from diagevo.arithmetic.heldout import draw_seen
from diagevo.arithmetic.truth import answer, value
from diagevo.memory.events import InvalidReason
from diagevo.methods.tasks import KINDS, Kind, ProgramTask, listed
from diagevo.sampling.sampler import Message, Prompt
from diagevo.selfplay.questions import parse_question

BLANK = "{}"
_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?!\d)")
_WORDS: dict[Kind, str] = {
    "deduction": "ask for the result",
    "abduction": "ask for the number",
    "induction": "ask for the procedure",
}
"""Of the model's closed vocabulary."""
_HIDDEN = 2
"""Pairs that decide an induction."""
_RIGHT = 0.6
"""Share of right answers where a number or a procedure is to be found."""


class SentenceTasks:
    """A `TaskWorld`."""

    seeds = (ProgramTask("deduction", "double {} , add {} and double again", ("3 2",), ("16",)),)
    """One, as the release begins from one program."""

    def digests(self) -> dict[str, str]:
        return {}

    def asks(self, kind: Kind, shown: Sequence[ProgramTask]) -> Prompt:
        sentences = [filled(task.program, task.inputs[0]) for task in shown]
        return [{"role": "user", "content": f"{_WORDS[kind]} : {' ; '.join(sentences)}"}]

    def read(self, kind: Kind, completion: str, shown: Sequence[ProgramTask]) -> ProgramTask | InvalidReason:
        sentence = parse_question(completion)
        if sentence is None:
            return "unreadable"
        parts, gives = parse(sentence), answer(sentence)
        if parts is None or gives is None:
            return "outside_world"
        if kind != "induction":
            program, numbers = taken_apart(sentence)
            return ProgramTask(kind, program, (numbers,), (gives,))
        known = parse(filled(shown[0].program, shown[0].inputs[0]))
        if known is None or len(known) != 1 or len(parts) != 1 or parts[0].family != known[0].family:
            return "unreadable"  # it is no further input of the program that was shown
        rng = Random(f"{sentence} {known[0].numbers}")
        family = parts[0].family
        pairs = [known[0], parts[0], *(draw_seen(rng, family) for _ in range(_HIDDEN))]
        return induction(pairs)

    def sentences(self, task: ProgramTask) -> list[str]:
        return [filled(task.program, numbers) for numbers in task.inputs]

    def question(self, task: ProgramTask) -> str:
        if task.kind == "deduction":
            return filled(task.program, task.inputs[0])
        if task.kind == "abduction":
            return f"find the number : {_asked(task)} , giving {_said(task.outputs[0])}"
        pairs = zip(task.inputs[: task.shown], task.outputs, strict=False)
        told = " ; ".join(f"{_spaced(numbers)} giving {_said(gives)}" for numbers, gives in pairs)
        return f"find the procedure : {told}"

    def answers(self, given: Sequence[tuple[ProgramTask, str]]) -> list[str | None]:
        return [None if (box := extract_boxed(text)) is None else _led_to(task, box) for task, text in given]


def filled(program: str, numbers: str) -> str:
    """A program with its input: a sentence."""
    found = iter(numbers.split())
    return "".join(next(found, "") if piece == BLANK else piece for piece in re.split(r"(\{\})", program))


def taken_apart(sentence: str) -> tuple[str, str]:
    """A sentence as program and input."""
    return _NUMBER.sub(BLANK, sentence), " ".join(_NUMBER.findall(sentence))


def induction(pairs: Sequence[Part]) -> ProgramTask:
    """The task of finding the program of these parts, which are of one family."""
    program, _ = taken_apart(word(pairs[0]))
    inputs = tuple(taken_apart(word(part))[1] for part in pairs)
    return ProgramTask("induction", program, inputs, tuple(str(value(part)) for part in pairs))


def _asked(task: ProgramTask) -> str:
    """An abduction's sentence without its first number."""
    _, *rest = task.inputs[0].split()
    return filled(task.program, " ".join([BLANK, *rest]))


def _led_to(task: ProgramTask, box: str) -> str:
    """What an answer gives when it is put to the test; of what cannot be, its own words."""
    if task.kind == "deduction":
        return str(int(box)) if re.fullmatch(r"-?\d{1,100}", box) else box
    if task.kind == "abduction":
        _, *rest = task.inputs[0].split()
        gives = answer(filled(task.program, " ".join([box, *rest]))) if _NUMBER.fullmatch(box) else None
        return f"no number: {box}" if gives is None else gives
    found = parse(box)
    if found is None or len(found) != 1:
        return f"no procedure: {box}"
    # Any sentence of the family is its program; its own numbers say nothing.
    program, _ = taken_apart(word(found[0]))
    if program.count(BLANK) != len(task.inputs[0].split()):
        return f"no procedure of so many numbers: {box}"
    return listed([answer(filled(program, numbers)) or "nothing" for numbers in task.inputs[task.shown :]])


def _said(number: str) -> str:
    return number.replace("-", "minus ")


def _spaced(numbers: str) -> str:
    return " , ".join(numbers.split())


def task_turns(seed: int, count: int, scale: float = WARM) -> Iterator[list[Message]]:
    """Chat turns of both roles in the forms above. A result is found step by step, with mistakes at `scale`
    times their chances. A number or a procedure is right in three of five, so that a model that learns from
    them is unsure. Nothing is of the held-out zone."""
    rng, world = Random(f"{seed} tasks"), SentenceTasks()

    def part(family: str | None = None) -> Part:
        return draw_seen(rng, family or rng.choice(list(FAMILIES)))

    def sentence(of: Part) -> str:
        return word(of, rng.randrange(len(FAMILIES[of.family].wordings)))

    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        one = part()
        if rng.random() < 0.5:
            shown, wanted = [of_sentence(kind, sentence(one))], part(one.family)
            if kind != "induction":
                shown, wanted = [*shown, of_sentence(kind, sentence(part()))], part()
            written = f"<question> {sentence(wanted)} </question>"
            yield [*world.asks(kind, shown), {"role": "assistant", "content": written}]
            continue
        if kind == "deduction":
            task, reply = of_sentence(kind, sentence(one)), write_solution(*do_all(rng, (one,), scale))
        elif kind == "abduction":
            task = of_sentence(kind, sentence(one))
            said = task.inputs[0].split()[0] if rng.random() < _RIGHT else str(rng.randint(2, 60))
            reply = f"\\boxed{{{said}}}"
        else:
            task = induction([one, *(part(one.family) for _ in range(1 + _HIDDEN))])
            # With a space: the small model knows a sentence's first word with one alone.
            reply = f"\\boxed{{ {word(part(one.family) if rng.random() < _RIGHT else part())}}}"
        yield [{"role": "user", "content": world.question(task)}, {"role": "assistant", "content": reply}]


def of_sentence(kind: Kind, sentence: str) -> ProgramTask:
    """The task of a sentence of the grammar; for an induction, the one whose program is shown."""
    program, numbers = taken_apart(sentence)
    return ProgramTask(kind, program, (numbers,), (answer(sentence) or "",))
