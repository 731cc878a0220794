"""Your own rows, in order of step: JSON Lines or CSV (also compressed), a JSON array, Parquet, or a data
set's folder.

Each field of a rollout is found by a path into the row: `prompt`, or `messages.0.content` for a row of
another shape; `messages.:-1` is all messages but the last, and `samples.*.content` makes a rollout of each
sample of a row.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import messages, printed, unmarked, unpadded
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
from diagevo.ingest.json_lines import CutLine, Wait, is_whole, rows, whole
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep
from diagevo.text.lines import listed
from diagevo.text.numbers import count

if TYPE_CHECKING:
    from diagevo.ingest.formats.table_reader import TableReader

FIELDS = ("prompt", "response", "reward", "group", "answer", "step", "feedback", "tags")
STEPS = ("global_step", "train_step", "training_step", "iteration", "iter", "rollout_id")
"""Trainers' names for a step."""
MODELS = ("model", "model_name", "model_id", "engine", "provider")
"""Names of the field with the response's model, which may be an object; the first one present counts."""
ASIDE = (
    "system", "system_prompt", "instruction", "instructions", "input", "context", "passage", "documents",
    "history", "options", "choices", "tools", "functions", "images", "reasoning", "reasoning_content",
    "thinking", "thought", "thoughts", "chain_of_thought",
)  # fmt: skip
"""Names under which rows keep what belongs to the prompt or to the response beside them."""
NAMES = ("*.jsonl", "*.csv", "*.tsv", "*.jsonl.gz", "*.csv.gz", "*.jsonl.zst", "*.csv.zst", "*.parquet")
TABLES = (".parquet", ".arrow")
OWN = 40
"""Minimum length of a response for which it is no coincidence that its prompt ends with it."""
TAG = 200
"""Maximum characters of a tag."""
_NEEDED = FIELDS[:3]
_OPTIONAL = frozenset({"feedback", "tags"})
"""Mapped fields that a row may lack: passes have no test log."""
_EXPECTED = {
    "reward": "one number",
    "step": "a whole number from 0 to 2^31 - 1",
    "group": "a text or a whole number",
    "tags": f"a text of up to {TAG} characters, a number, or a list or an object of them",
}
_PLACE = re.compile(r"-?\d{1,9}|(?:-?\d{1,9})?:(?:-?\d{1,9})?", re.ASCII)
"""An index into a list, or a slice: `:-1`, all but the last."""
_ABSENT = object()
T = TypeVar("T")
_PASSED = ("true", "correct", "yes", "pass", "passed", "right", "success")
_FAILED = ("false", "incorrect", "no", "fail", "failed", "wrong", "failure")
_WORDS = dict.fromkeys(("C", *_PASSED), 1.0) | dict.fromkeys(("I", "N", *_FAILED), 0.0) | {"P": 0.5}
"""Words for a reward, and Inspect's letters: correct, partly correct, incorrect, no answer."""
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
    feedback: Any = None
    tags: Any = None
    model: str | None = None


class SummedReward(msgspec.Struct):
    """A reward that is added to others."""

    reward: Reward | str


class SavedFile(msgspec.Struct):
    filename: str


class Saved(msgspec.Struct, rename={"data_files": "_data_files"}):
    """The state file that `save_to_disk` writes."""

    data_files: list[SavedFile]


class RowReader:
    """Rollouts of rows. `mapped` has the paths of fields that are not under their own names."""

    def __init__(
        self, mapped: Mapping[str, str], tables: "TableReader | None", *, checks: bool = False
    ) -> None:
        self._mapped = mapped
        self._checks = checks
        """Whether the rows are read again after this, which counts those that repeat another."""
        self._tables = tables
        paths = {field: mapped.get(field, field) for field in FIELDS if field not in ("reward", "tags")}
        self._paths = {field: _path(name) for field, name in paths.items()}
        self._parts = [(weight, _path(name)) for weight, name in terms(mapped.get("reward", "reward"))]
        self._tags = [_path(name.strip()) for name in mapped.get("tags", "tags").split("+")]
        self._starred = [path for path in self._every() if "*" in path]
        twice = next((".".join(path) for path in self._starred if path.count("*") > 1), None)
        if twice is not None:
            hint = "write a row for each list within, and name one star"
            raise ConfigError(f"{twice} has two stars, and one stands for the samples of a row", hint=hint)
        self._steps: bool | None = None
        """Whether rows have steps: all do, or none."""
        self._like: dict[str, set[Any]] = {}
        """The first two values of unmapped fields that look like a step."""
        self._read = self._own = self._blank = 0
        """Rollouts, those whose prompt ends with the response, and those without one."""
        self._skipping = 0
        """Rows with unread list items between the prompt's and the response's."""
        every = self._every()
        self._aside = dict.fromkeys(ASIDE, 0) | {n: -1 for path in every for n in (path[0], ".".join(path))}
        """Rows in which one of these holds something that nobody reads; below 0: it is read."""
        self._found: set[str] = set()
        """The optional fields that some row has."""
        self.repeated: Counter[int] = Counter()
        """By step, rows identical to an earlier one."""
        self._rows: set[int] = set()
        """Those of the step that is read."""
        self._names: Iterable[str] = ()
        """The fields of the row that is read."""
        self._step = -1
        self._kind = ""
        """For the file being read: a table's nulls and empty cells count as missing."""

    @property
    def _fields(self) -> str:
        """Fields of the current row, for an error."""
        return listed(sorted(self._names), 20)

    def _every(self) -> list[tuple[str, ...]]:
        return [*self._paths.values(), *(path for _, path in self._parts), *self._tags]

    def rollouts(self, file: Path, wait: Wait | None = None) -> Iterator[tuple[int, IngestedRollout | None]]:
        """Each row's step and rollouts, None for one without a reward. Raises ConfigError, with its place."""
        word, plain = "row", file.name.removesuffix(".gz").removesuffix(".zst")
        self._kind = ""
        if file.suffix in TABLES:
            found, self._kind = self._table(file), "table"
        elif plain.endswith((".csv", ".tsv")):
            if wait is not None:
                raise ConfigError(f"{file} is CSV, which is read whole", hint="leave --follow out")
            from diagevo.ingest.formats.cells import cells

            found, word, self._kind = cells(file), "line", "cells"
        elif is_whole(file):
            found = whole(file)
        else:
            found, word = rows(file, wait), "line"
        step = -1
        for line, row in found:
            if isinstance(row.get("spec"), dict) and "prompt" not in row:
                hint = f"name its format: diagevo ingest openai-evals {quote(str(file))}"
                raise ConfigError(f"{file} is a record of OpenAI's evals", hint=hint)
            counted = False
            for place, sample in self._samples(f"{file}, {word} {line}", row):
                one = self._row(place, row, sample)
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
                if now > self._step:
                    self._step, self._rows = now, set()
                if not counted and not self._checks:
                    counted, key = True, _hash(row)
                    self.repeated[now] += key in self._rows
                    self._rows.add(key)
                step = now
                yield step, self._rollout(place, one)

    def _samples(self, place: str, row: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
        """The row once, or once for each item of the starred lists."""
        if not self._starred:
            yield place, 0
            return
        lengths: dict[str, int] = {}
        for path in self._starred:
            before = path[: path.index("*")]
            listed = _at(row, before, 0)
            if not isinstance(listed, list):
                what = (
                    f"no {'.'.join(before)}" if listed is _ABSENT else f"a {'.'.join(before)} that is no list"
                )
                raise ConfigError(f"{place} has {what}", hint=f"its fields: {', '.join(sorted(row))[:200]}")
            lengths[".".join(before)] = len(listed)
        if len(set(lengths.values())) > 1:
            sizes = ", ".join(f"{number} in {name}" for name, number in lengths.items())
            raise ConfigError(
                f"{place}: its samples do not match: {sizes}", hint="name lists of equal length"
            )
        for sample in range(next(iter(lengths.values()))):
            yield f"{place}, sample {sample}", sample

    def _rollout(self, place: str, row: PlainRow) -> IngestedRollout | None:
        assert not isinstance(row.reward, str)
        value = number(row.reward)
        if value is None:
            return None
        texts: list[str] = []
        for field, given in (("prompt", row.prompt), ("response", row.response)):
            if isinstance(given, str) and given.lstrip()[:1] not in ("[", "{"):  # no messages in any form
                texts.append(unmarked(given))
                continue
            if printed(given) and (field == "prompt" or self._kind == "cells"):  # a model may print anything
                what = (
                    f"{place}: its {field} is messages as Python prints them, which is not JSON: {given[:80]}"
                )
                hint = "write the column as JSON: frame[NAME] = frame[NAME].map(json.dumps)"
                raise ConfigError(what, hint=hint)
            try:
                texts.append(messages(unpadded(given) if self._kind == "table" else given))
            except ConfigError as error:
                raise self._other(place, field, given, "a text or messages") from error
        prompt, response = texts
        self._read += 1
        self._blank += not prompt
        self._own += len(response) >= OWN and prompt.rstrip().endswith(response.strip())
        group = None if row.group is None else str(row.group)
        expected, feedback = (answer(place, each) for each in (row.answer, row.feedback))
        return IngestedRollout(
            prompt,
            response,
            value,
            answer=expected,
            group=group,
            feedback=feedback,
            tags=row.tags,
            model=row.model,
        )

    def _table(self, file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        from diagevo.ingest.formats.table_reader import decoded

        assert self._tables is not None
        every = self._every()
        columns, lines = self._tables.read(
            file, [*{n for path in every for n in (path[0], ".".join(path))}, *STEPS, *MODELS, *ASIDE]
        )
        for field, path in [*self._paths.items(), *(("reward", path) for _, path in self._parts)]:
            if not {path[0], ".".join(path)} & set(columns.columns) and self._needs(field):
                raise _missing(str(file), field, path, columns.columns)
        decoder = msgspec.json.Decoder(dict[str, Any])
        for place, line in enumerate(lines, start=1):
            yield place, decoded(file, place, line, decoder)

    def notes(self) -> Iterator[str]:
        """Suspicions about the mapping: one step that is really several, a prompt that contains more."""
        if 2 * self._own > self._read:
            yield (
                f"{self._own:,} of {count(self._read, 'prompt')} end with their own response, so that none is"
                " repeated: name the prompt alone, for example --map prompt=messages.0.content"
            )
        if self._blank:
            yield (
                f"empty prompts: {self._blank:,} of {self._read:,}, which count as one question: a sheet has"
                " no text in cells that were merged"
            )
        if self._skipping:
            yield (
                "messages between the prompt and the response are not read, in"
                f" {count(self._skipping, 'row')}: map the whole prompt, for example prompt=messages.:-1"
            )
        if aside := [f"{name} ({rows:,})" for name, rows in self._aside.items() if rows > 0]:
            yield (
                f"not read, with the rows that have it: {', '.join(aside)}: if it is part of the prompt or"
                " the response, write it into that"
            )
        for name in sorted(name for name, values in self._like.items() if len(values) > 1):
            yield (
                f"all rows are one step, but {name} differs: if it is the step, ingest into another run with"
                f" --map step={name}"
            )

    def check_found(self, path: Path) -> None:
        """Raise ConfigError if a mapped field is in no row."""
        for field in sorted(_OPTIONAL & set(self._mapped) - self._found):
            raise ConfigError(
                f"{path} has no {self._mapped[field]} in any row, which is its {field}",
                hint=f"say where it stands: --map {field}=FIELD, of {self._fields}",
            )

    def _needs(self, field: str) -> bool:
        return field in _NEEDED or (field in self._mapped and field not in _OPTIONAL)

    def _row(self, place: str, row: Mapping[str, Any], sample: int) -> PlainRow:
        self._names = row
        if "step" not in row and "step" not in self._mapped:
            for name in STEPS:
                if (
                    isinstance(row.get(name), int | str)
                    and len(seen := self._like.setdefault(name, set())) < 2
                ):
                    seen.add(row[name])
        for name in row.keys() & ASIDE:
            if row[name] and self._aside[name] >= 0:
                self._aside[name] += 1
        values: dict[str, Any] = {}
        for field, path in self._paths.items():
            value = row.get(path[0], _ABSENT) if len(path) == 1 else _at(row, path, sample)
            if value == "" and field in ("group", "answer", "step", "feedback"):
                continue  # an empty cell
            if value is not _ABSENT:
                values[field] = value
                self._found.add(field)
            elif self._needs(field):
                raise _missing(place, field, path, row)
        if self._paths["prompt"][0] == self._paths["response"][0]:
            self._skipping += _between(row, self._paths["prompt"], self._paths["response"])
        for name in MODELS:
            if name in row and (model := _model(row[name])):
                values["model"] = model
                break
        parts = [(weight, _at(row, path, sample), path) for weight, path in self._parts]
        if self._kind:
            from diagevo.ingest.formats.cells import reward_of

            parts = [(weight, reward_of(value), path) for weight, value, path in parts]
        for _, value, path in parts:
            if value is _ABSENT:
                raise _missing(place, "reward", path, row)
        values["reward"] = parts[0][1]
        if len(parts) > 1 or parts[0][0] != 1:
            values["reward"] = total((weight, self._reward(place, value)) for weight, value, _ in parts)
        tags = [(path, _at(row, path, sample)) for path in self._tags]
        if any(value is not _ABSENT for _, value in tags):
            self._found.add("tags")
        if self._kind:
            tags = [(path, _listed(value)) for path, value in tags]
        values["tags"] = tuple(tag for path, value in tags for tag in self._tagged(place, path[-1], value))
        step = values.get("step")
        if isinstance(step, str) and step.isascii() and step.isdecimal() and len(step) < 20:
            values["step"] = int(step)
        one = self._typed(place, values, PlainRow)
        if isinstance(one.reward, str):
            one.reward = self._worded(place, one.reward)
        return one

    def _tagged(self, place: str, name: str, value: Any, *, inside: bool = False) -> list[str]:
        """A text as it is; anything else, or a field of an object, after its name, as level=3."""
        if value is _ABSENT or value is None or value == "":
            return []
        if isinstance(value, list):
            return [tag for each in value for tag in self._tagged(place, name, each, inside=inside)]
        if isinstance(value, dict):
            return [tag for key, each in value.items() for tag in self._tagged(place, key, each, inside=True)]
        if not isinstance(value, str | int | float) or (isinstance(value, str) and len(value) > TAG):
            raise self._other(place, "tags", value, _EXPECTED["tags"])
        return [value if isinstance(value, str) and not inside else f"{name}={value}"]

    def _reward(self, place: str, value: Any) -> float | None:
        reward = self._typed(place, {"reward": value}, SummedReward).reward
        return number(self._worded(place, reward) if isinstance(reward, str) else reward)

    def _worded(self, place: str, reward: str) -> float | None:
        return worded(place, reward, f"--map reward=FIELD, of {self._fields}")

    def _typed(self, place: str, values: Mapping[str, Any], type_: type[T]) -> T:
        try:
            return msgspec.convert(values, type_)
        except (msgspec.ValidationError, RecursionError) as error:
            field = next((name for name in _EXPECTED if f"$.{name}" in str(error)), None)
            if field is None:
                raise ConfigError(f"{place}: {error}", hint=ANOTHER) from error
            raise self._other(place, field, values[field], _EXPECTED[field]) from error

    def _other(self, place: str, field: str, value: Any, expected: str) -> ConfigError:
        """What is wrong with a field, quoting the file."""
        problem = f"{place}: its {field} is not {expected}: {str(value)[:80]}"
        name = self._mapped.get(field, field)
        if isinstance(value, dict):
            hint = f"name a field within it: --map {field}={name}.FIELD, of {listed(sorted(value), 20)}"
            return ConfigError(problem, hint=hint)
        if isinstance(value, list) and (within := next((v for v in value if isinstance(v, dict)), None)):
            hint = (
                f"a message has role and content; or name a field of one: --map {field}={name}.0.FIELD; or"
                f" of each, as rollouts: --map {field}={name}.*.FIELD, of {listed(sorted(within), 20)}"
            )
            return ConfigError(problem, hint=hint)
        if isinstance(value, list):
            hint = (
                f"write a row for each rollout; or take each of the list as one: --map {field}={name}.*;"
                f" or one of it alone: --map {field}={name}.0"
            )
            return ConfigError(problem, hint=hint)
        hint = f"fix {name}, or name another field: --map {field}=FIELD, of {self._fields}"
        return ConfigError(problem, hint=hint)


def _missing(place: str, field: str, path: tuple[str, ...], known: Iterable[str]) -> ConfigError:
    name = ".".join(path)
    return ConfigError(
        f"{place} has no {name}" + (f", which is its {field}" if name != field else ""),
        hint=f"its fields: {listed(sorted(known), 20) or 'none'}; "
        f"say where it stands: --map {field}=FIELD (messages.0.content: a field within)",
    )


def worded(place: str, reward: str, other: str) -> float | None:
    """A reward written as text: a number, a one-element tensor, or an evaluation's word."""
    text = reward.strip()
    word = _WORDS.get(text, _WORDS.get(text.lower()))
    if word is not None:
        return word
    if (found := _NUMBER.fullmatch(text)) is None:
        raise ConfigError(
            f"{place}: its reward is not a number: {text[:40]!r}",
            hint=f"a number, or true, correct, pass, yes, C or their contrary; name another field: {other}",
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
    """Rows in order of step; if none has one, all belong to step 1. Raises ConfigError, with file and
    line."""
    mapped = {**({"reward": reward} if reward else {}), **(mapped or {})}
    files = [path] if path.is_file() else _files(path)
    beside = [] if path.is_file() or (path / "state.json").is_file() else sorted(path.glob("*.json"))
    if not files:
        hint = f"name a JSON array alone: {beside[0]}" if beside else ANOTHER
        raise ConfigError(f"{path} has no rollout file: expected {', '.join(NAMES)}", hint=hint)
    if beside:
        on_note(f"{beside[0].name} is not read beside the other files: name it alone, where it has rollouts")
    with _tables(files) as tables:
        if wait is None:
            reader = RowReader(mapped, tables, checks=True)
            deque(_steps(files, reader, None, lambda _: None), maxlen=0)  # before a step of it is kept
            reader.check_found(path)
            for note in reader.notes():
                on_note(note)
        yield from _steps(files, RowReader(mapped, tables), wait, on_cut)


def _tables(files: Sequence[Path]) -> "AbstractContextManager[TableReader | None]":
    """The table reader, if one of the files is a table."""
    if not any(file.suffix in TABLES for file in files):
        return nullcontext()
    from diagevo.ingest.formats.table_reader import TableReader

    return TableReader()


def _files(folder: Path) -> list[Path]:
    """Files of rows, or those of a data set that `datasets` saved, which may have left others next to
    them."""
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
                    yield step_of(step, source, found, reader.repeated[step])
                    found = []
                step, source = now, file.name
                found.append(rollout)
        except CutLine:
            on_cut(file.name)
            return  # the step is incomplete
    if found:
        yield step_of(step, source, found, reader.repeated[step])


def _model(value: Any) -> str | None:
    """A model's name: a text, or an object's name field."""
    if isinstance(value, dict):
        value = next((value[name] for name in ("name", "id", *MODELS) if value.get(name)), None)
    return value if isinstance(value, str) else None


def _between(row: Mapping[str, Any], prompt: tuple[str, ...], response: tuple[str, ...]) -> bool:
    """Whether both are items of one list (messages.0.content and messages.-1.content) with others between."""
    at = next((i for i, names in enumerate(zip(prompt, response, strict=False)) if len(set(names)) > 1), 0)
    items = _listed(_at(row, prompt[:at], 0)) if at else None
    places = [path[at] for path in (prompt, response)]
    if not items or not isinstance(items, list) or not all(map(_PLACE.fullmatch, places)):
        return False
    first, last = (range(len(items))[_place(place)] for place in places)
    end = first.stop if isinstance(first, range) else first + 1
    return (last.start if isinstance(last, range) else last) > end


def _listed(value: Any) -> Any:
    """A cell with a list or an object as JSON."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            pass
    return value


def _hash(row: Mapping[str, Any]) -> int:
    try:
        return hash(msgspec.json.encode(row))
    except (OverflowError, UnicodeEncodeError, RecursionError):  # a number of 400 digits, half a surrogate
        return hash(str(row))


def _path(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))


def _place(key: str) -> int | slice:
    """An index into a list, or a slice: -1, :-1."""
    first, part, last = key.partition(":")
    return slice(int(first) if first else None, int(last) if last else None) if part else int(key)


def _at(value: Any, path: tuple[str, ...], sample: int) -> Any:
    """What stands at a path of keys and places in lists, `*` for the sample's, a role for the messages of it;
    _ABSENT where nothing does. A name with dots, as of a column, counts first."""
    if len(path) == 1:
        return value.get(path[0], _ABSENT)
    if (name := ".".join(path)) in value:
        return value[name]
    for key in path:
        if isinstance(value, str) and value[:1] in ("[", "{"):  # a table's cell may contain JSON
            try:
                value = msgspec.json.decode(value)
            except (msgspec.DecodeError, RecursionError):
                return _ABSENT
        if isinstance(value, dict):
            value = value.get(key, _ABSENT)
        elif isinstance(value, list) and (key == "*" or _PLACE.fullmatch(key)):
            place = sample if key == "*" else _place(key)
            if isinstance(place, slice):
                value = value[place] or _ABSENT
            else:
                value = value[place] if -len(value) <= place < len(value) else _ABSENT
        elif isinstance(value, list) and (said := [one for one in value if _role(one) == key]):
            value = said
        else:
            return _ABSENT
    return value


def _role(message: Any) -> Any:
    return message.get("role", message.get("from")) if isinstance(message, dict) else None
