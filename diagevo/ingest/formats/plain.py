"""Plain JSON Lines of one's own: the rollouts in order of their steps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.rows import ANOTHER, LAST_STEP, Row, answer, number, step_of, with_reward
from diagevo.ingest.lines import CutLine, Wait, typed
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep


class PlainRow(Row):
    """A rollout."""

    step: Annotated[int, msgspec.Meta(ge=0, le=LAST_STEP)]
    prompt: str
    response: str
    answer: Any = None
    group: str | int | None = None


def read(
    path: Path, reward: str | None, wait: Wait | None, on_cut: Callable[[str], None]
) -> Iterator[RolloutStep]:
    """Rows in order of their steps. Raises ConfigError, with file and line."""
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl"))
    if not files:
        raise ConfigError(f"{path} has no rollout file: expected *.jsonl", hint=ANOTHER)
    type_ = with_reward(PlainRow, reward or "reward")
    if wait is None:
        for file in files:
            _check(file, type_)  # before a step of it is kept
    step, source, found = -1, "", []
    for file in files:
        try:
            for line, row in typed(file, type_, wait if file == files[-1] else None):
                if row.step < step:
                    raise ConfigError(
                        f"{file}, line {line}: step {row.step} comes after step {step}",
                        hint="write the rollouts in order of their steps",
                    )
                if row.step != step and found:
                    yield step_of(step, source, found)
                    found = []
                step, source = row.step, file.name
                found.append(_rollout(f"{file}, line {line}", row))
        except CutLine:
            on_cut(file.name)
            return  # the step is not whole
    if found:
        yield step_of(step, source, found)


def _check(file: Path, type_: type[Any]) -> None:
    """Raises ConfigError for a line that is no rollout."""
    try:
        for _ in typed(file, type_):
            pass
    except CutLine:
        pass


def _rollout(place: str, row: PlainRow) -> IngestedRollout | None:
    value = number(row.reward)
    if value is None:
        return None
    group = None if row.group is None else str(row.group)
    return IngestedRollout(row.prompt, row.response, value, answer(place, row.answer), group)
