"""Absolute Zero's tasks in Python: programs that the model writes, run by `executing`."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

from diagevo.config.models import AbsoluteZeroConfig
from diagevo.executing.executor import Execution, PythonExecutor, Refusal, read_literal, same_literal
from diagevo.memory.events import InvalidReason
from diagevo.methods.tasks import Kind, ProgramTask, listed
from diagevo.sampling.sampler import Prompt
from diagevo.selfplay.templates import fill, load_templates

FIELDS: Mapping[str, tuple[str, ...]] = {
    "deduction_asked": ("count", "shown"),
    "abduction_asked": ("count", "shown"),
    "induction_asked": ("shown", "inputs"),
    "deduction_user": ("program", "input"),
    "abduction_user": ("program", "output"),
    "induction_user": ("pairs", "message"),
}
"""Templates with their fields."""

_BLOCK = re.compile(r"```(\w++)[^\S\n]*+\n(.*?)```", re.DOTALL)
"""A fence without a language closes a block and opens none."""
_REASONS: Mapping[Refusal, InvalidReason] = {
    "banned": "banned",
    "not_deterministic": "not_deterministic",
    "too_long": "too_long",
}
"""Of a refusal; any other is a program that does not run to a value in its limits."""


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language in a text, stripped."""
    return [body.strip() for name, body in _BLOCK.findall(text) if name.lower() == language]


class PythonTasks:
    """A `TaskWorld`."""

    seeds = (ProgramTask("deduction", "def f(a):\n    return a", ('"Hello world"',), ("'Hello world'",)),)
    """The release's one program."""

    def __init__(self, settings: AbsoluteZeroConfig) -> None:
        self.settings = settings

    @cached_property
    def executor(self) -> PythonExecutor:
        return PythonExecutor()

    @cached_property
    def templates(self) -> dict[str, str]:
        return load_templates("diagevo.methods", FIELDS)

    def digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in self.templates.items()}

    def asks(self, kind: Kind, shown: Sequence[ProgramTask]) -> Prompt:
        values = {"inputs": str(self.settings.inputs), "count": str(len(shown))}
        if kind == "induction":
            values["shown"] = _fenced("python", shown[0].program)
        else:
            values["shown"] = "\n\n".join(
                f"{_fenced('python', task.program)}\n\n{_fenced('input', task.inputs[0])}" for task in shown
            )
        return self._user(f"{kind}_asked", values)

    def read(self, kind: Kind, completion: str, shown: Sequence[ProgramTask]) -> ProgramTask | InvalidReason:
        inputs, message = blocks(completion, "input"), ""
        if kind == "induction":
            program, messages = shown[0].program, blocks(completion, "message")
            inputs = inputs[-self.settings.inputs :]
            if len(inputs) < self.settings.inputs or not messages:
                return "unreadable"
            message = messages[0]
        else:
            programs = blocks(completion, "python")
            if not programs or not inputs:
                return "unreadable"
            program, inputs = programs[0], inputs[:1]
        found = self._run(program, tuple(inputs))
        if found.refused is not None:
            return _REASONS.get(found.refused, "not_executable")
        return ProgramTask(kind, program, tuple(inputs), found.outputs, message)

    @lru_cache(maxsize=4096)  # noqa: B019  (a candidate is read when it is written, and when it is loaded)
    def _run(self, program: str, inputs: tuple[str, ...]) -> Execution:
        return self.executor.run(program, inputs)

    def sentences(self, task: ProgramTask) -> list[str]:
        return [self.question(task)]

    def question(self, task: ProgramTask) -> str:
        values = {"program": _fenced("python", task.program), "input": task.inputs[0]}
        if task.kind == "abduction":
            values["output"] = task.outputs[0]
        elif task.kind == "induction":
            pairs = zip(task.inputs[: task.shown], task.outputs, strict=False)
            values["pairs"] = "\n\n".join(
                f"{_fenced('input', given)}\n{_fenced('output', gives)}" for given, gives in pairs
            )
            values["message"] = task.message
        return fill(self.templates[f"{task.kind}_user"], values)

    def answers(self, given: Sequence[tuple[ProgramTask, str]]) -> list[str | None]:
        """A value is compared as a literal, an input is put into the program, and a program is given the
        hidden inputs."""
        found = [_answer(task, text) for task, text in given]
        runs = {
            place: _run(task, answer)
            for place, ((task, _), answer) in enumerate(zip(given, found, strict=True))
            if answer is not None and task.kind != "deduction"
        }
        executions = dict(zip(runs, self.executor.run_many(list(runs.values())), strict=True))
        return [
            None if answer is None else _led_to(task, answer, executions.get(place))
            for place, ((task, _), answer) in enumerate(zip(given, found, strict=True))
        ]

    def _user(self, template: str, values: Mapping[str, str]) -> Prompt:
        fields = {name: value for name, value in values.items() if name in FIELDS[template]}
        return [{"role": "user", "content": fill(self.templates[template], fields)}]


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


_ANSWERED: Mapping[Kind, str] = {"deduction": "output", "abduction": "input", "induction": "python"}


def _answer(task: ProgramTask, text: str) -> str | None:
    """The last block of the requested kind."""
    found = blocks(text, _ANSWERED[task.kind])
    return found[-1] if found and found[-1] else None


def _run(task: ProgramTask, answer: str) -> tuple[str, Sequence[str]]:
    if task.kind == "abduction":
        return task.program, [answer]
    return answer, task.inputs[task.shown :]


def _led_to(task: ProgramTask, answer: str, execution: Execution | None) -> str:
    if execution is None:
        value = read_literal(answer)
        return task.label if same_literal(answer, task.label) else repr(value[0]) if value else answer
    if execution.refused is not None:
        return execution.refused
    hidden = task.outputs[task.shown :] if task.kind == "induction" else task.outputs
    if all(same_literal(one, other) for one, other in zip(execution.outputs, hidden, strict=True)):
        return task.label
    return execution.outputs[0] if task.kind == "abduction" else listed(execution.outputs)
