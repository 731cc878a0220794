"""Rows printed as they come: any number of them, a page in memory.

For what may be as long as the log. `render.rows` is for the few rows of a summary: it sees them all before
the first is printed, and knows fractions.
"""

import csv
import math
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from diagevo.errors import ConfigError
from diagevo.texts import json_text

from ..options import Call
from . import console as render
from .console import Column

PAGE = 1000
"""Rows from which the widths of a table are taken; later cells that are longer push the rest aside."""
ON_SCREEN = 1000
"""Rows of a table on a terminal: nobody scrolls further."""
GROUP = 20_000
"""Rows of a Parquet row group; the first one gives the types."""
HELD = 8 * 2**20
"""Characters of a JSON document that wait in memory for its last row; a longer one waits on the disk."""

if TYPE_CHECKING:
    import pyarrow

Row = Mapping[str, Any]


def stream(
    call: Call,
    columns: Sequence[Column],
    values: Iterable[Row],
    *,
    run: str | None = None,
    as_of: tuple[int, int] | None = None,
) -> None:
    """Print rows as `--format` asks; all have the keys of the first.

    table and md show `columns`, the others every key. On a terminal a table ends after `ON_SCREEN` rows, and
    says so. Parquet needs one type a column: ConfigError where a later row has another one.
    """
    rows = iter(values)
    if call.format == "parquet":
        _parquet(call, columns, rows)
        return
    if call.format == "table" and call.output is None and sys.stdout.isatty():
        render.rows(call, columns, islice(rows, ON_SCREEN))
        if next(rows, None) is not None:
            render.say(call, f"only the first {ON_SCREEN:,} rows; all of them with -o FILE, or in a pipe")
        return
    with sink(call) as out:
        match call.format:
            case "csv":
                _csv(out, columns, rows)
            case "json":
                _json(out, call, rows, run, as_of)
            case "jsonl":
                for row in rows:
                    out.write(json_line(row) + "\n")
            case "md":
                out.write(render.markdown_head(columns))
                for row in rows:
                    out.write(render.markdown_line(render.cells(columns, row)))
            case _:
                _table(out, columns, rows)


class Out(Protocol):
    """Where finished text goes."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class _Screen:
    """A terminal: it shows control characters, and does not obey them."""

    def write(self, text: str, /) -> None:
        sys.stdout.write(render.visible(text))

    def flush(self) -> None:
        sys.stdout.flush()


@contextmanager
def sink(call: Call) -> Iterator[Out]:
    """Stdout, or the file of `-o`. A reader that goes away (`| head`) has seen enough: exit code 0."""
    if call.output is not None:
        with render.opened(call.output, "w") as file:
            yield file
        return
    try:
        yield _Screen() if sys.stdout.isatty() else sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        render.leave()


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    value = _finite(render.plain(value))
    return json_text(value) if isinstance(value, dict | list) else value


def json_line(row: Row, indent: int | None = None) -> str:
    """A row as JSON. Infinities and NaN, which JSON has not, are null."""
    finite = {key: _finite(value) for key, value in row.items()}
    return json_text(finite, indent=indent, default=render.plain)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case list():
            return [_finite(item) for item in value]
        case dict():
            return {key: _finite(item) for key, item in value.items()}
    return value


def _csv(out: Out, columns: Sequence[Column], rows: Iterator[Row]) -> None:
    writer = csv.writer(out, lineterminator="\n")
    first = next(rows, None)
    keys = [c.key for c in columns] if first is None else list(first)
    writer.writerow(keys)
    for row in chain([] if first is None else [first], rows):
        writer.writerow([render.csv_cell(_plain(row.get(key))) for key in keys])


def _json(out: Out, call: Call, rows: Iterator[Row], run: str | None, as_of: tuple[int, int] | None) -> None:
    """The envelope, its list filled a row at a time. It is held back until the last row is read: where a
    later one fails, the error stands alone on stdout."""
    before, _, after = render.dump(render.envelope(call.schema, [], run=run, as_of=as_of)).rpartition("[]")
    with tempfile.SpooledTemporaryFile(HELD, "w+", encoding="utf-8", newline="") as held:
        held.write(before + "[")
        comma = ""
        for row in rows:
            held.write(f"{comma}\n    " + json_line(row, indent=2).replace("\n", "\n    "))
            comma = ","
        held.write(("\n  ]" if comma else "]") + after + "\n")
        held.seek(0)
        shutil.copyfileobj(held, out)


def _table(out: Out, columns: Sequence[Column], rows: Iterator[Row]) -> None:
    page = [[c.heading for c in columns], *(render.cells(columns, row) for row in islice(rows, PAGE))]
    widths = render.widths(page)
    for line in chain(page, (render.cells(columns, row) for row in rows)):
        out.write(render.padded(columns, line, widths))


def _parquet(call: Call, columns: Sequence[Column], rows: Iterator[Row]) -> None:
    import pyarrow
    import pyarrow.parquet

    if call.output is None:
        raise ConfigError("parquet cannot be printed", hint="name a file: -o rows.parquet")
    group = list(islice(rows, GROUP))
    try:
        first = _arrow(columns, group, None)
        schema = pyarrow.schema(
            [f.with_type(pyarrow.string()) if pyarrow.types.is_null(f.type) else f for f in first.schema]
        )
        with render.opened(call.output, "wb") as file, pyarrow.parquet.ParquetWriter(file, schema) as out:
            while group:
                out.write_table(_arrow(columns, group, schema))
                group = list(islice(rows, GROUP))
    except pyarrow.ArrowException as error:
        raise ConfigError(
            f"the rows do not fit one type a column: {error}", hint="csv and jsonl take any value"
        ) from error


def _arrow(
    columns: Sequence[Column], rows: Sequence[Row], schema: "pyarrow.Schema | None"
) -> "pyarrow.Table":
    import pyarrow

    flat = [{key: _plain(value) for key, value in row.items()} for row in rows]
    if not flat:
        return pyarrow.table({c.key: pyarrow.array([], pyarrow.string()) for c in columns})
    return pyarrow.Table.from_pylist(flat, schema=schema)
