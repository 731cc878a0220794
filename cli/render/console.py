"""Everything that is printed: JSON documents, rows in six formats, aligned text, messages.

Data goes to stdout, everything else to stderr. Text of models and users is never read as markup, and its
control characters are shown, not obeyed (`diagevo.texts`). Without a terminal there is no ANSI and no
carriage return.
"""

import csv
import dataclasses
import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NoReturn

from diagevo.errors import ConfigError, MissingDependencyError
from diagevo.redaction import masked
from diagevo.texts import csv_text, json_text, markdown_text, visible

from ..options import Call

if TYPE_CHECKING:
    from rich.console import Console


def stdout(call: Call) -> "Console":
    return _console(call, sys.stdout)


def stderr(call: Call) -> "Console":
    return _console(call, sys.stderr)


def _console(call: Call, stream: IO[str]) -> "Console":
    from rich.console import Console

    terminal = stream.isatty()
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        no_color=True if not call.color else None,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=not terminal,
    )


def say(call: Call, text: str) -> None:
    """A line for the person, on stderr; nothing with `-q`."""
    if not call.quiet:
        print(visible(masked(text)), file=sys.stderr, flush=True)


def plain(value: Any) -> Any:
    """`value` as JSON takes it. A Fraction becomes {"exact": "1/3", "value": 0.333…}."""
    match value:
        case None | bool() | int() | float() | str():
            return value.value if isinstance(value, Enum) else value
        case Fraction():
            return {"exact": str(value), "value": float(value)}
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case Enum():
            return plain(value.value)
        case Path():
            return str(value)
        case datetime():
            return value.isoformat()
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _ if hasattr(value, "__struct_fields__"):  # msgspec's
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case _ if hasattr(value, "model_dump"):
            return plain(value.model_dump())
        case Iterable():
            return [plain(item) for item in value]
    raise TypeError(f"no JSON form for {type(value).__name__}")


def number(value: Fraction | float | None, digits: int = 3) -> str:
    """A short decimal for people: "0.333"; "–" where there is none."""
    return "–" if value is None else f"{float(value):.{digits}f}"


def fraction(value: Fraction | None, digits: int = 3) -> str:
    """A fraction for people, exact and rounded: "1/3 = 0.333"; a whole number alone."""
    if value is None:
        return "–"
    return str(value) if value.denominator == 1 else f"{value} = {number(value, digits)}"


def document(
    call: Call, data: Any, text: str, *, run: str | None = None, as_of: tuple[int, int] | None = None
) -> None:
    """Print `text`, or with `--json` the envelope around `data`. `as_of` is (round, position)."""
    if call.format not in ("table", "json"):
        raise ConfigError(f"this is a text and no rows: it has no {call.format}", hint="as JSON: --json")
    if call.json:
        _write(call, dump(envelope(call.schema, data, run=run, as_of=as_of)) + "\n")
    else:
        _write(call, visible(text).rstrip("\n") + "\n")


def text(call: Call, written: str) -> None:
    """Print something that is finished as it stands: a schema, a file's text."""
    _write(call, written.rstrip("\n") + "\n")


def envelope(
    schema: str, data: Any, *, run: str | None = None, as_of: tuple[int, int] | None = None
) -> dict[str, Any]:
    where = None if as_of is None else {"round": as_of[0], "position": as_of[1]}
    return {"schema": schema, "run": run, "as_of": where, "data": plain(data)}


def dump(value: Any) -> str:
    return json_text(value, indent=2)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `rows`: the key in each row, its heading, and how a person reads it."""

    key: str
    title: str | None = None
    align: Literal["left", "right"] = "left"
    digits: int = 3

    @property
    def heading(self) -> str:
        return self.title if self.title is not None else self.key


def rows(
    call: Call,
    columns: Sequence[Column],
    values: Iterable[Mapping[str, Any]],
    *,
    run: str | None = None,
    as_of: tuple[int, int] | None = None,
    title: str | None = None,
) -> None:
    """Print rows as `--format` asks, to stdout or the file of `-o`.

    table and md show `columns` (`title` stands above, on stderr in a pipe); json, jsonl, csv and parquet hold
    every key of every row. In csv and parquet a fraction `x` is a float, and `x_exact` beside it is exact.
    json, jsonl and parquet hold texts exactly; md and csv show them (`texts.visible`), and in csv none is a
    formula.
    """
    listed = list(values)
    match call.format:
        case "table":
            _table(call, columns, listed, title)
        case "md":
            _write(call, _markdown(columns, listed))
        case "json":
            _write(call, dump(envelope(call.schema, listed, run=run, as_of=as_of)) + "\n")
        case "jsonl":
            _write(call, "".join(json_text(plain(r)) + "\n" for r in listed))
        case "csv":
            _write(call, _csv(columns, listed))
        case "parquet":
            _parquet(call, columns, listed)


def _cell(value: Any, digits: int) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case Fraction() | float():
            return number(value, digits)
        case str() | int() | Path():
            return visible(str(value), one_line=True)
        case Mapping():
            return json_text(plain(value))
        case Iterable():
            return ", ".join(_cell(item, digits) for item in value)
    return visible(str(value), one_line=True)


def cells(columns: Sequence[Column], row: Mapping[str, Any]) -> list[str]:
    """A row for people, a text a column."""
    return [_cell(row.get(c.key), c.digits) for c in columns]


def widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """The widest cell of each column."""
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(*lines, strict=True)]


def padded(columns: Sequence[Column], line: Sequence[str], wide: Sequence[int]) -> str:
    """A line of cells in columns of these widths, two spaces apart; a longer cell is not cut."""
    from rich.cells import cell_len

    out = []
    for column, text, width in zip(columns, line, wide, strict=True):
        gap = " " * (width - cell_len(text))
        out.append(gap + text if column.align == "right" else text + gap)
    return "  ".join(out).rstrip() + "\n"


def aligned(columns: Sequence[Column], values: Iterable[Mapping[str, Any]]) -> str:
    """Rows as plain text in columns two spaces apart, never cut and never wrapped."""
    lines = [[c.heading for c in columns], *(cells(columns, row) for row in values)]
    wide = widths(lines)
    return "".join(padded(columns, line, wide) for line in lines)


def _table(call: Call, columns: Sequence[Column], values: list[Mapping[str, Any]], title: str | None) -> None:
    if call.output is not None or not sys.stdout.isatty():
        if title is not None:
            say(call, title)
        _write(call, aligned(columns, values))
        return
    from .table import draw

    heading = [c.heading for c in columns]
    draw(stdout(call), columns, [heading, *(cells(columns, row) for row in values)], title)


def markdown_head(columns: Sequence[Column]) -> str:
    rule = "|" + "|".join("---:" if c.align == "right" else "---" for c in columns) + "|\n"
    return markdown_line([c.heading for c in columns]) + rule


def markdown_line(line: Sequence[str]) -> str:
    return "| " + " | ".join(map(markdown_text, line)) + " |\n"


def _markdown(columns: Sequence[Column], values: list[Mapping[str, Any]]) -> str:
    return markdown_head(columns) + "".join(markdown_line(cells(columns, row)) for row in values)


def _flat(
    columns: Sequence[Column], values: list[Mapping[str, Any]]
) -> tuple[list[str], list[dict[str, Any]]]:
    """Rows for csv and parquet: fractions in two columns, nested values as JSON text.

    A word among fractions (τ up to "any") stands in the exact column alone.
    """
    keys = dict.fromkeys([*(c.key for c in columns), *(key for row in values for key in row)])
    exact = {key for key in keys if any(isinstance(row.get(key), Fraction) for row in values)}
    names = [name for key in keys for name in ((key, f"{key}_exact") if key in exact else (key,))]
    flat = []
    for row in values:
        line: dict[str, Any] = {}
        for key in keys:
            value = row.get(key)
            if key in exact:
                line[f"{key}_exact"] = None if value is None else str(value)
                value = None if value is None or isinstance(value, str) else float(value)
            value = plain(value)
            line[key] = json_text(value) if isinstance(value, dict | list) else value
        flat.append(line)
    return names, flat


def _csv(columns: Sequence[Column], values: list[Mapping[str, Any]]) -> str:
    names, flat = _flat(columns, values)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_cell(value) for key, value in line.items()} for line in flat)
    return buffer.getvalue()


def csv_cell(value: Any) -> Any:
    """A plain value for a cell of a CSV file: numbers as they are, texts as `texts.csv_text` has them."""
    return csv_text(value) if isinstance(value, str) else value


def _parquet(call: Call, columns: Sequence[Column], values: list[Mapping[str, Any]]) -> None:
    if call.output is None:
        raise ConfigError("parquet cannot be printed", hint="name a file: -o rows.parquet")
    try:
        import polars
    except ImportError as error:
        raise MissingDependencyError("parquet needs polars", hint="run: pip install polars") from error
    names, flat = _flat(columns, values)
    frame = polars.DataFrame(flat, schema=names, orient="row", infer_schema_length=None)
    with opened(call.output, "wb") as file:
        frame.write_parquet(file)


def _write(call: Call, text: str) -> None:
    if call.output is None:
        try:
            sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()
        except BrokenPipeError:
            leave()
        return
    with opened(call.output, "w") as file:
        file.write(text)


def leave() -> NoReturn:
    """End well: the reader has enough (`| head`), which is no finding. What is buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def opened(path: Path, mode: Literal["w", "wb"]) -> IO[Any]:
    with writing(path, hint="name another file with -o"):
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open(mode, encoding=None if mode == "wb" else "utf-8")


@contextmanager
def writing(path: Path, hint: str = "name another place") -> Iterator[None]:
    """Around what writes to a place that the user named: a place that takes nothing is their mistake."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error
