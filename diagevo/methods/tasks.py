"""Tasks about programs, as in Absolute Zero: a program f, an input i, an output o = f(i), and which of the
three is to be found.

A world defines how a task is requested, parsed and put to the solver, and how an answer is executed. There
are two: Python programs (`python_tasks`), and the sentences of the arithmetic world.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, Protocol, cast, get_args

from diagevo.memory.events import InvalidReason
from diagevo.sampling.sampler import Prompt

Kind = Literal["deduction", "abduction", "induction"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Find the output, an input that gives it, or the program."""


@dataclass(frozen=True, slots=True)
class ProgramTask:
    """A program with inputs and their outputs: one of each, or for an induction several, of which the
    solver sees the first half."""

    kind: Kind
    program: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    message: str = ""
    """The challenger's description of the program for the solver that has to find it."""

    @property
    def shown(self) -> int:
        """How many pairs the solver of an induction sees."""
        return len(self.inputs) // 2

    @property
    def label(self) -> str:
        """The result of a right answer: the output, or those of the hidden inputs."""
        return self.outputs[0] if self.kind != "induction" else listed(self.outputs[self.shown :])

    def text(self) -> str:
        """Its form in the log."""
        return json.dumps(asdict(self), ensure_ascii=False)


def read_task(text: str) -> ProgramTask:
    """The inverse of `ProgramTask.text`."""
    fields = json.loads(text)
    pairs = {name: tuple(fields[name]) for name in ("inputs", "outputs")}
    return ProgramTask(cast("Kind", fields["kind"]), fields["program"], message=fields["message"], **pairs)


def listed(outputs: Sequence[str]) -> str:
    """Several outputs as one."""
    return f"[{', '.join(outputs)}]"


class TaskWorld(Protocol):
    """Where programs run. All methods are deterministic in their arguments."""

    seeds: tuple[ProgramTask, ...]
    """The initial buffer."""

    def digests(self) -> dict[str, str]:
        """Digests of its prompt templates, by name."""
        ...

    def asks(self, kind: Kind, shown: Sequence[ProgramTask]) -> Prompt:
        """The challenger's prompt, with past tasks; for an induction, the task whose program it uses."""
        ...

    def read(self, kind: Kind, completion: str, shown: Sequence[ProgramTask]) -> ProgramTask | InvalidReason:
        """The task in a completion, executed, or the reason why there is no usable one."""
        ...

    def sentences(self, task: ProgramTask) -> list[str]:
        """Texts that must not be in a validation set."""
        ...

    def question(self, task: ProgramTask) -> str:
        """The solver's prompt: the task without the part to be found."""
        ...

    def answers(self, given: Sequence[tuple[ProgramTask, str]]) -> list[str | None]:
        """The result of executing each response's answer: for a right one, exactly the task's label. None
        if the response has no answer."""
        ...
