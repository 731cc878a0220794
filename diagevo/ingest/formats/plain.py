"""Rows of one's own, in order of their steps: JSON Lines (also compressed), a JSON array, Parquet, or a data
set's folder.

Each field of a rollout is found by a path into the row: `prompt`, or `messages.0.content` for a row of
another shape.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import messages
from diagevo.ingest.formats.rows import (
    ANOTHER,
    LAST_STEP,
    Reward,
    answer,
    number,
    step_of,
    terms,
    total,
)
from diagevo.ingest.formats.tables import TableReader, decoded
from diagevo.ingest.lines import CutLine, Wait, array, is_array, rows
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep

FIELDS = ("prompt", "response", "reward", "group", "answer", "step")
STEPS = ("global_step", "train_step", "training_step", "iteration", "iter", "epoch", "rollout_id")
"""Names under which trainers write a step."""
NAMES = ("*.jsonl", "*.jsonl.gz", "*.jsonl.zst", "*.parquet")
_NEEDED = FIELDS[:3]
_EXPECTED = {
    "reward": "one number",
    "step": "a whole number from 0 to 2^63 - 1",
    "group": "a text or a whole number",
}
_ABSENT = object()
T = TypeVar("T")
_WORDS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "true": 1.0, "false": 0.0}
"""Evaluations' words for a reward: correct, partly so, incorrect, no answer."""
_NUMBER = re.compile(
    r"(tensor\()?([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[+-]?(?:nan|inf|infinity))"
    r"(?(1)(?:, \w+=[\w.:']+)*\))",
    re.IGNORECASE,
)


class PlainRow(msgspec.Struct, kw_only=True):
    prompt: Any
    response: Any
    reward: Reward | str
    step: Annotated[int, msgspec.Meta(ge=0, le=LAST_STEP)] | None = None
    answer: Any = None
    group: str | int | None = None


class SummedReward(msgspec.Struct):
    """A reward that is added to others."""

    reward: Reward | str


class SavedFile(msgspec.Struct):
    filename: str


class Saved(msgspec.Struct, rename={"data_files": "_data_files"}):
    """What `save_to_disk` says of its folder."""

    data_files: list[SavedFile]


class RowReader:
    """Rollouts of rows. `mapped` has the paths of fields that stand elsewhere than under their own names."""

    def __init__(self, mapped: Mapping[str, str], tables: TableReader) -> None:
        self._mapped = mapped
        self._tables = tables
        self._paths = {field: _path(mapped.get(field, field)) for field in FIELDS if field != "reward"}
        self._parts = [(weight, _path(name)) for weight, name in terms(mapped.get("reward", "reward"))]
        self._steps: bool | None = None
        """Whether rows have steps: all do, or none."""
        self._like: dict[str, set[Any]] = {}
        """Of fields that look like a step and are not mapped, the first two values."""

    def rollouts(self, file: Path, wait: Wait | None = None) -> Iterator[tuple[int, IngestedRollout | None]]:
        """Each row's step and rollout, None where it has no reward. Raises ConfigError, with its place."""
        word = "row"
        if file.suffix in (".parquet", ".arrow"):
            found = self._table(file)
        elif file.suffix == ".json" and is_array(file):
            found = array(file)
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
            yield step, self._rollout(place, one)

    def _rollout(self, place: str, row: PlainRow) -> IngestedRollout | None:
        assert not isinstance(row.reward, str)
        value = number(row.reward)
        if value is None:
            return None
        texts: list[str] = []
        for field, said in (("prompt", row.prompt), ("response", row.response)):
            try:
                texts.append(messages(said))
            except ConfigError as error:
                raise self._other(place, field, said, "a text or messages") from error
        group = None if row.group is None else str(row.group)
        return IngestedRollout(texts[0], texts[1], value, answer(place, row.answer), group)

    def _table(self, file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        paths = [*self._paths.items(), *(("reward", path) for _, path in self._parts)]
        columns, lines = self._tables.read(file, [*(path[0] for _, path in paths), *STEPS])
        for field, path in paths:
            if path[0] not in columns.columns and self._needs(field):
                raise _missing(str(file), field, path, columns.columns)
        decoder = msgspec.json.Decoder(dict[str, Any])
        for place, line in enumerate(lines, start=1):
            yield place, decoded(file, place, line, decoder)

    def unmapped(self) -> Iterator[str]:
        """What was read as one step, and seems to be several."""
        for name in sorted(name for name, values in self._like.items() if len(values) > 1):
            yield (
                f"all rows are one step, but {name} differs: if it is the step, ingest into another run with"
                f" --map step={name}"
            )

    def _needs(self, field: str) -> bool:
        return field in _NEEDED or field in self._mapped

    def _row(self, place: str, row: Mapping[str, Any]) -> PlainRow:
        if "step" not in row and "step" not in self._mapped:
            for name in STEPS:
                if (
                    isinstance(row.get(name), int | str)
                    and len(seen := self._like.setdefault(name, set())) < 2
                ):
                    seen.add(row[name])
        values: dict[str, Any] = {}
        for field, path in self._paths.items():
            value = _at(row, path)
            if value is not _ABSENT:
                values[field] = value
            elif self._needs(field):
                raise _missing(place, field, path, row)
        parts = [(weight, _at(row, path), path) for weight, path in self._parts]
        for _, value, path in parts:
            if value is _ABSENT:
                raise _missing(place, "reward", path, row)
        values["reward"] = parts[0][1]
        if len(parts) > 1 or parts[0][0] != 1:
            values["reward"] = total((weight, self._reward(place, value)) for weight, value, _ in parts)
        step = values.get("step")
        if isinstance(step, str) and step.isascii() and step.isdecimal() and len(step) < 20:
            values["step"] = int(step)
        one = self._typed(place, values, PlainRow)
        if isinstance(one.reward, str):
            one.reward = _said(place, one.reward)
        return one

    def _reward(self, place: str, value: Any) -> float | None:
        reward = self._typed(place, {"reward": value}, SummedReward).reward
        return number(_said(place, reward) if isinstance(reward, str) else reward)

    def _typed(self, place: str, values: Mapping[str, Any], type_: type[T]) -> T:
        try:
            return msgspec.convert(values, type_)
        except (msgspec.ValidationError, RecursionError) as error:
            field = next((name for name in _EXPECTED if f"$.{name}" in str(error)), None)
            if field is None:
                hint = f"name other fields: --map {','.join(f'{field}=FIELD' for field in _NEEDED)}"
                raise ConfigError(f"{place}: {error}", hint=hint) from error
            raise self._other(place, field, values[field], _EXPECTED[field]) from error

    def _other(self, place: str, field: str, value: Any, expected: str) -> ConfigError:
        """What is wrong with a field, in the file's own words."""
        said = f"{place}: its {field} is not {expected}: {str(value)[:80]}"
        name = self._mapped.get(field, field)
        if isinstance(value, list) and any(isinstance(each, dict) for each in value):
            hint = f"a message has role and content; or name one text of it: --map {field}={name}.0.FIELD"
            return ConfigError(said, hint=hint)
        if isinstance(value, list):
            hint = f"write a row for each rollout, or name one of the list: --map {field}={name}.0"
            return ConfigError(said, hint=hint)
        return ConfigError(said, hint=f"mend {name}, or name another field: --map {field}=FIELD")


def _missing(place: str, field: str, path: tuple[str, ...], known: Iterable[str]) -> ConfigError:
    name = ".".join(path)
    return ConfigError(
        f"{place} has no {name}" + (f", which is its {field}" if name != field else ""),
        hint=f"its fields: {', '.join(sorted(known))[:200] or 'none'}; "
        f"say where it stands: --map {field}=FIELD (messages.0.content: a field within)",
    )


def _said(place: str, reward: str) -> float | None:
    """A reward that was written as text: a number, a tensor of one, or an evaluation's word."""
    text = reward.strip()
    word = _WORDS.get(text, _WORDS.get(text.lower()))
    if word is not None:
        return word
    if (found := _NUMBER.fullmatch(text)) is None:
        raise ConfigError(
            f"{place}: its reward is not a number: {text[:40]!r}",
            hint=f"a number, or one of {', '.join(_WORDS)}; name another field: --map reward=FIELD",
        )
    return number(float(found[2]))


def read(
    path: Path,
    reward: str | None,
    mapped: Mapping[str, str] | None,
    wait: Wait | None,
    on_cut: Callable[[str], None],
    on_note: Callable[[str], None],
) -> Iterator[RolloutStep]:
    """Rows in order of their steps; where none has one, all are of step 1. Raises ConfigError, with file and
    line."""
    mapped = {**({"reward": reward} if reward else {}), **(mapped or {})}
    files = [path] if path.is_file() else _files(path)
    if not files:
        raise ConfigError(f"{path} has no rollout file: expected {', '.join(NAMES)}", hint=ANOTHER)
    with TableReader() as tables:
        if wait is None:
            _check(files, reader := RowReader(mapped, tables))  # before a step of it is kept
            for note in reader.unmapped():
                on_note(note)
        yield from _steps(files, RowReader(mapped, tables), wait, on_cut)


def _files(folder: Path) -> list[Path]:
    """Files of rows, or those of a data set that `datasets` saved, which may have left others beside them."""
    if (folder / "dataset_dict.json").is_file():
        splits = sorted(each.parent.name for each in folder.glob("*/state.json"))
        raise ConfigError(
            f"{folder} holds the splits {', '.join(splits) or 'of a data set, and none is there'}",
            hint=f"name one: {folder / (splits or ['SPLIT'])[0]}",
        )
    state = folder / "state.json"
    if not state.is_file():
        return sorted(file for name in NAMES for file in folder.glob(name))
    try:
        names = [each.filename for each in msgspec.json.decode(state.read_bytes(), type=Saved).data_files]
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"{state} cannot be read: {error}", hint="save the data set again") from error
    return [folder / Path(name).name for name in names]


def _steps(
    files: list[Path], reader: RowReader, wait: Wait | None, on_cut: Callable[[str], None]
) -> Iterator[RolloutStep]:
    step, source, found = -1, "", []
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


def _check(files: list[Path], reader: RowReader) -> None:
    """Raises ConfigError for a row that is no rollout."""
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
