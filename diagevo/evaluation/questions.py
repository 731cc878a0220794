"""What a benchmark is: where its rows are, how a question is put and read, what counts as right."""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from diagevo.evaluation.rows import Hub, Row
from diagevo.text.escaping import utf8

Group = Literal["mathematics", "general", "validation"]
Kind = Literal["answer", "vote", "choice", "text"]
"""answer: a boxed mathematical answer, compared by answer agreement; vote: the same, read as self-play reads
its votes, by the last box alone; choice: a letter; text: exact match."""

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CHOICE_INSTRUCTION = r"Choose one option and put only its letter within \boxed{}."
TEXT_INSTRUCTION = r"Put only the final answer, in the form that the question asks for, within \boxed{}."


@dataclass(frozen=True, slots=True)
class Question:
    """One question as it is asked: `text` is what the solver's prompt holds, options included."""

    text: str
    reference: str
    """Empty for a question that has no answer: then no response is right."""
    category: str | None
    kind: Kind
    options: int = 0
    """How many letters a choice has."""


@dataclass(frozen=True, slots=True)
class QuestionSource:
    """Rows of one source: where they are, how they are read, and which of them are wanted."""

    name: str
    hub: Hub
    question: str | tuple[str, ...]
    gold: Callable[[Row], str]
    kind: Kind
    licence: str
    category: str | tuple[str, ...] = ()
    """What results are grouped by, where a row has it; a benchmark that is drawn from must have it."""
    choices: Callable[[Row, random.Random], tuple[list[str], int]] | None = None
    """The options in the order they are shown, and the index of the right one."""
    keep: Callable[[Row], bool] | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is measured and how. `draw`: questions of each part, evenly over its categories; None: all."""

    name: str
    title: str
    group: Group
    parts: tuple[QuestionSource, ...]
    questions: int
    """Size of the full set, to tell a whole measurement from a partial one."""
    samples: int = 1
    temperature: float = 0.0
    judged: bool = False
    """Whether the paper's protocol puts a language model behind the rule."""
    draw: int | None = None

    @property
    def metric(self) -> str:
        return "accuracy" if self.samples == 1 else f"mean@{self.samples}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The questions of a benchmark in a fixed order, and a digest of exactly these."""

    benchmark: Benchmark
    questions: tuple[Question, ...]
    source: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        content = json.dumps([[q.text, q.reference, q.kind] for q in self.questions], ensure_ascii=False)
        object.__setattr__(self, "digest", hashlib.sha256(utf8(content)).hexdigest())
