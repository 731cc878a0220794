"""A training's data set: its prompts, matched with the log, and its next epoch.

A trainer logs a prompt through its chat template, and the data set holds messages. The template is inferred
from a logged prompt that has a row's last user message on separate lines.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from math import floor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from diagevo.errors import ConfigError, extra
from diagevo.ingest.formats.messages import conversation, messages
from diagevo.ingest.json_lines import CutLine, is_whole, rows, whole
from diagevo.memory.log.artifacts import digest_of
from diagevo.private import atomic_file
from diagevo.text.escaping import json_text

if TYPE_CHECKING:
    import polars as pl

FIELDS = ("prompt", "question", "problem", "input", "messages")
"""Fields that may have a row's prompt; the first one present counts."""
MISSES = 300
"""Stop searching after this many logged prompts without a matching row."""
_A_PROMPT = f"each row has its prompt, a text or messages, in one of: {', '.join(FIELDS)}"


@dataclass(frozen=True, slots=True)
class DatasetPrompt:
    """A row's prompt: `text` is what `ingest` makes of it, `user` its last user message."""

    line: int
    text: str
    user: str


@dataclass(slots=True)
class PromptDataset:
    """The rows of a data set, with their prompts."""

    name: str
    """In messages."""
    rows: list[dict[str, Any]]
    prompts: list[DatasetPrompt]
    schema: "Mapping[str, pl.DataType] | None" = None
    """Of a table."""
    digests: list[str | None] = field(default_factory=list[str | None])
    """By row, the prompt in the log; None if it was never rolled out."""

    @classmethod
    def of(cls, rows: Iterable[dict[str, Any]], name: str) -> Self:
        """A data set of these rows, called `name` in messages. Raises ConfigError, also for no rows."""
        found = list(rows)
        if not found:
            raise ConfigError(f"{name} has no rows", hint="give it one prompt or more")
        return cls(name, found, [_prompt(f"{name}, row {n}", n, row) for n, row in enumerate(found, 1)])

    def match(self, logged: Mapping[str, str]) -> int:
        """Find the rows among the logged prompts.

        Args:
            logged: Every prompt that was rolled out, by digest.

        Returns:
            How many rows were found.
        """
        whole = [digest_of(prompt.text) for prompt in self.prompts]
        users = {p.user for p, digest in zip(self.prompts, whole, strict=True) if digest not in logged}
        alone = {user: digest for user in users if (digest := digest_of(user)) in logged}
        known = {*whole, *alone.values()}
        others = {digest: text for digest, text in logged.items() if digest not in known}
        found = {**alone, **_through_templates(users - alone.keys() - {""}, others)}
        self.digests = [
            digest if digest in logged else found.get(prompt.user)
            for prompt, digest in zip(self.prompts, whole, strict=True)
        ]
        return sum(digest is not None for digest in self.digests)

    def next_epoch(self, weights: Sequence[Fraction], seed: str) -> list[int]:
        """As many rows as the data set has, each repeated by its weight, randomly rounded up or down.

        Args:
            weights: By row; they sum to 1.
            seed: The same seed gives the same rows.

        Returns:
            The indices of the rows, in order.
        """
        rng = random.Random(seed)
        order = list(range(len(weights)))
        rng.shuffle(order)
        offset = Fraction(rng.randrange(2**32), 2**32)
        until = [
            floor(total * len(order) + offset) for total in accumulate(weights[place] for place in order)
        ]
        copies = [end - start for start, end in zip([0, *until], until, strict=False)]
        return sorted(place for place, number in zip(order, copies, strict=True) for _ in range(number))

    def write(self, file: Path, places: Sequence[int], columns: Mapping[str, Sequence[Any]]) -> None:
        """The rows at `places`, with further columns, as .parquet or .jsonl. Raises ConfigError."""
        found = [
            {**self.rows[place], **{name: values[place] for name, values in columns.items()}}
            for place in places
        ]
        if file.suffix not in (".parquet", ".jsonl"):
            raise ConfigError(f"{file} is neither .parquet nor .jsonl", hint="name it so: -o next.parquet")
        try:
            with atomic_file(file) as part:  # half a file would train as if it were complete
                if file.suffix == ".parquet":
                    self._write_parquet(part, found, columns)
                else:
                    part.write_text("".join(f"{json_text(row)}\n" for row in found), encoding="utf-8")
        except (OSError, TypeError, ValueError) as error:
            raise ConfigError(f"{file} cannot be written: {error}", hint="try -o next.jsonl") from error

    def _write_parquet(self, file: Path, found: Sequence[dict[str, Any]], added: Iterable[str]) -> None:
        with extra("polars", f"writing {file}"):
            import polars as pl

        schema = None if self.schema is None else {**self.schema, **dict.fromkeys(added)}
        try:
            pl.DataFrame(found, schema=schema, infer_schema_length=None).write_parquet(file)
        except pl.exceptions.PolarsError as error:
            raise ValueError(str(error)) from error


def read_dataset(path: Path, prompt: str | None = None) -> PromptDataset:
    """JSON lines, a JSON array, Parquet, or a folder that `datasets` saved.

    Args:
        path: The file or folder.
        prompt: A row's field with the prompt, tried before the usual ones.

    Raises:
        ConfigError: A row that has no prompt, with file and row; a file that cannot be read.
    """
    if not path.exists():
        raise ConfigError(f"there is no file {path}", hint=_A_PROMPT)
    names = FIELDS if prompt is None else (prompt, *FIELDS)
    table = _table(path)
    found = list(enumerate(table.to_dicts(), 1) if table is not None else _json_rows(path))
    if not found:
        raise ConfigError(f"{path} has no prompts", hint=_A_PROMPT)
    prompts = [_prompt(f"{path}, row {number}", number, row, names) for number, row in found]
    return PromptDataset(
        str(path), [row for _, row in found], prompts, None if table is None else table.schema
    )


def _table(path: Path) -> "pl.DataFrame | None":
    if not (path.is_dir() or path.suffix == ".parquet"):
        return None
    with extra("polars", f"reading {path}"):
        import polars as pl

    try:
        if path.is_dir():
            files = sorted(path.glob("*.arrow"))
            if not files:
                raise ConfigError(
                    f"{path} has no .arrow file", hint="name a file, or a folder of save_to_disk"
                )
            return pl.concat([pl.read_ipc_stream(file) for file in files])
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="is it still being written?") from error


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        yield from whole(path) if is_whole(path) else rows(path)
    except CutLine:
        raise ConfigError(f"{path} ends inside a line", hint="is it still being written?") from None


def _prompt(place: str, number: int, row: Mapping[str, Any], names: Sequence[str] = FIELDS) -> DatasetPrompt:
    value = next((row[name] for name in names if row.get(name) is not None), None)
    if value is None:
        raise ConfigError(f"{place} has none of {', '.join(names)}", hint=_A_PROMPT)
    try:
        text = messages(value).strip()
        user_turns = [message for message in conversation(value) or [] if message.get("role") == "user"]
        return DatasetPrompt(number, text, messages(user_turns[-1:]).strip() if user_turns else text)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.message}", hint=_A_PROMPT) from error


def _through_templates(wanted: set[str], logged: Mapping[str, str]) -> dict[str, str]:
    """For user messages inside a logged prompt, its digest."""
    found: dict[str, str] = {}
    left, misses = dict(logged), 0
    while left and misses < MISSES and wanted:
        first = next(iter(left))
        template = _template(left[first], wanted)
        if template is None:
            del left[first]
            misses += 1
            continue
        before, after = template
        for digest, text in list(left.items()):
            if text.startswith(before) and text.endswith(after) and len(text) >= len(before) + len(after):
                user = text[len(before) : len(text) - len(after)].strip()
                if user in wanted:
                    found[user] = digest
                    del left[digest]
    return found


def _template(text: str, wanted: set[str]) -> tuple[str, str] | None:
    """The text before and after the longest message that stands alone in the text."""
    for message in sorted((message for message in wanted if message in text), key=len, reverse=True):
        start = len(text)
        while (start := text.rfind(message, 0, start + len(message) - 1)) >= 0:  # examples come before it
            before, after = text[:start], text[start + len(message) :]
            if _alone(before, after):
                return before, after
    return None


def _alone(before: str, after: str) -> bool:
    """Whether template marks or line ends surround it."""
    opens, closes = before.strip(" ")[-1:], after.strip(" ")[:1]
    return opens in ("", "\n", ">", "]", ":") and closes in ("", "\n", "<", "[")
