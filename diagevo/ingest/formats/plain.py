"""JSON of one's own: JSON Lines (also compressed) or an array, the rollouts in order of their steps.

Each field of a rollout is found by a path into the row: `prompt`, or `messages.0.content` for a row of
another shape.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import messages
from diagevo.ingest.formats.rows import ANOTHER, LAST_STEP, Row, answer, number, step_of
from diagevo.ingest.lines import CutLine, Wait, array, is_array, rows
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep

FIELDS = ("prompt", "response", "reward", "group", "answer", "step")
_NEEDED = FIELDS[:3]
_ABSENT = object()


class PlainRow(Row):
    """A rollout."""

    prompt: Any
    response: Any
    step: Annotated[int, msgspec.Meta(ge=0, le=LAST_STEP)] | None = None
    answer: Any = None
    group: str | int | None = None


class RowReader:
    """Rollouts of rows. `mapped` has the paths of fields that stand elsewhere than under their own names."""

    def __init__(self, mapped: Mapping[str, str]) -> None:
        self._mapped = mapped
        self._paths = {field: _path(mapped.get(field, field)) for field in FIELDS}
        self._steps: bool | None = None
        """Whether rows have steps: all do, or none."""

    def rollouts(self, file: Path, wait: Wait | None = None) -> Iterator[tuple[int, IngestedRollout | None]]:
        """Each row's step and rollout, None where it has no reward. Raises ConfigError, with its place."""
        if file.suffix == ".json" and is_array(file):
            found, word = array(file), "row"
        else:
            found, word = rows(file, wait), "line"
        step = -1
        for line, row in found:
            place = f"{file}, {word} {line}"
            one = self._row(place, row)
            if self._steps is None:
                self._steps = one.step is not None
            if self._steps != (one.step is not None):
                raise ConfigError(
                    f"{place} has {'no' if self._steps else 'a'} step, unlike the rows before it",
                    hint="give every row a step, or none",
                )
            if (now := 1 if one.step is None else one.step) < step:
                raise ConfigError(
                    f"{place}: step {now} comes after step {step}",
                    hint="write the rollouts in order of their steps",
                )
            step = now
            yield step, _rollout(place, one)

    def _row(self, place: str, row: Mapping[str, Any]) -> PlainRow:
        values: dict[str, Any] = {}
        for field, path in self._paths.items():
            value = _at(row, path)
            if value is not _ABSENT:
                values[field] = value
            elif field in self._mapped or field in _NEEDED:
                name = ".".join(path)
                raise ConfigError(
                    f"{place} has no {name}" + (f", which is its {field}" if name != field else ""),
                    hint=f"its fields: {', '.join(sorted(row))[:200] or 'none'}; "
                    f"say where it stands: --map {field}=FIELD (messages.0.content: a field within)",
                )
        try:
            return msgspec.convert(values, PlainRow)
        except (msgspec.ValidationError, RecursionError) as error:
            hint = f"name other fields: --map {','.join(f'{field}=FIELD' for field in _NEEDED)}"
            raise ConfigError(f"{place}: {error}", hint=hint) from error


def read(
    path: Path,
    reward: str | None,
    mapped: Mapping[str, str] | None,
    wait: Wait | None,
    on_cut: Callable[[str], None],
) -> Iterator[RolloutStep]:
    """Rows in order of their steps; where none has one, all are of step 1. Raises ConfigError, with file and
    line."""
    mapped = {**({"reward": reward} if reward else {}), **(mapped or {})}
    files = [path] if path.is_file() else sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
    if not files:
        raise ConfigError(f"{path} has no rollout file: expected *.jsonl or *.jsonl.gz", hint=ANOTHER)
    if wait is None:
        _check(files, mapped)  # before a step of it is kept
    reader, step, source, found = RowReader(mapped), -1, "", []
    for file in files:
        try:
            for now, rollout in reader.rollouts(file, wait if file == files[-1] else None):
                if now < step:
                    raise ConfigError(
                        f"{file} begins with step {now}, after step {step}",
                        hint="name the files so that their steps are in order",
                    )
                if now != step and found:
                    yield step_of(step, source, found)
                    found = []
                step, source = now, file.name
                found.append(rollout)
        except CutLine:
            on_cut(file.name)
            return  # the step is not whole
    if found:
        yield step_of(step, source, found)


def _check(files: list[Path], mapped: Mapping[str, str]) -> None:
    """Raises ConfigError for a row that is no rollout."""
    reader = RowReader(mapped)
    for file in files:
        try:
            for _ in reader.rollouts(file):
                pass
        except CutLine:
            pass


def _path(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))


def _at(value: Any, path: tuple[str, ...]) -> Any:
    """What stands at a path of keys and places in lists; _ABSENT where nothing does."""
    for key in path:
        if isinstance(value, dict):
            value = value.get(key, _ABSENT)
        elif isinstance(value, list) and key.removeprefix("-").isdecimal() and len(key) < 10:
            place = int(key)
            value = value[place] if -len(value) <= place < len(value) else _ABSENT
        else:
            return _ABSENT
    return value


def _rollout(place: str, row: PlainRow) -> IngestedRollout | None:
    value = number(row.reward)
    if value is None:
        return None
    try:
        prompt, response = messages(row.prompt), messages(row.response)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.message}", hint=error.hint) from error
    group = None if row.group is None else str(row.group)
    return IngestedRollout(prompt, response, value, answer(place, row.answer), group)
