"""Tasks about programs, as Absolute Zero has them: a program f, an input i, an output o = f(i), and which of
the three is to be found.

A world says how a task is asked for, read, put to the solver, and how an answer is executed. There are two:
Python programs (`python_tasks`), and the sentences of the arithmetic world.
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
    """A program with inputs and what it gives for them: one of each, or for an induction several, of which
    the solver is shown the first half."""

    kind: Kind
    program: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    message: str = ""
    """What the challenger says of the program to who has to find it."""

    @property
    def shown(self) -> int:
        """How many pairs the solver of an induction is shown."""
        return len(self.inputs) // 2

    @property
    def label(self) -> str:
        """What a right answer leads to: the output, or those of the hidden inputs."""
        return self.outputs[0] if self.kind != "induction" else listed(self.outputs[self.shown :])

    def text(self) -> str:
        """As the log keeps it."""
        return json.dumps(asdict(self), ensure_ascii=False)


def read_task(text: str) -> ProgramTask:
    """What `ProgramTask.text` wrote."""
    fields = json.loads(text)
    pairs = {name: tuple(fields[name]) for name in ("inputs", "outputs")}
    return ProgramTask(cast("Kind", fields["kind"]), fields["program"], message=fields["message"], **pairs)


def listed(outputs: Sequence[str]) -> str:
    """Several outputs as one."""
    return f"[{', '.join(outputs)}]"


class TaskWorld(Protocol):
    """Where programs run. All of it gives the same for the same arguments."""

    seeds: tuple[ProgramTask, ...]
    """What the buffer begins with."""

    def digests(self) -> dict[str, str]:
        """Of its prompt templates, by name."""
        ...

    def asks(self, kind: Kind, shown: Sequence[ProgramTask]) -> Prompt:
        """What the challenger is asked, past tasks shown; for an induction, the task whose program it is."""
        ...

    def read(self, kind: Kind, completion: str, shown: Sequence[ProgramTask]) -> ProgramTask | InvalidReason:
        """The task in a completion, executed; where there is none that may be used, why."""
        ...

    def sentences(self, task: ProgramTask) -> list[str]:
        """What no validation set may have."""
        ...

    def question(self, task: ProgramTask) -> str:
        """What the solver is asked: the task without what is to be found."""
        ...

    def answers(self, given: Sequence[tuple[ProgramTask, str]]) -> list[str | None]:
        """What each response's answer leads to when it is executed: of a right one the task's label, in its
        very words. None where the response has no answer."""
        ...
