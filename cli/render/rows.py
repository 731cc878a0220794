"""The only writer of rows, in six formats: any number of rows, one page in memory."""

import csv
import math
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from diagevo.errors import ConfigError, extra
from diagevo.text.escaping import csv_text, json_text, visible

from ..call import CommandContext
from .console import Out, Point, dump, envelope, opened, plain, row_of, say, sink, stdout
from .table import Column, cells, draw, markdown_line, markdown_rule, on_the_right, padded, widths

PAGE = 1000
"""Rows that determine the keys and the widths of a table; longer cells in later rows push the rest aside. A
terminal shows no more: nobody scrolls further."""
GROUP = 20_000
"""Rows of a Parquet row group; the first one gives the types."""
HELD = 8 * 2**20
"""Characters of a JSON document buffered in memory until its last row; a longer one is buffered on disk."""

if TYPE_CHECKING:
    import polars
    from _typeshed import DataclassInstance

Row = Mapping[str, Any]


def print_rows(
    call: CommandContext,
    columns: Sequence[Column],
    values: "Iterable[Row | DataclassInstance]",
    *,
    run: str | None = None,
    as_of: Point | None = None,
) -> None:
    """Print rows as `--format` asks, to stdout or the file of `-o`, as they come.

    table and md show `columns`; json, jsonl, csv and parquet hold every key of the first `PAGE` rows. In csv
    and parquet a fraction `x` is a float, and `x_exact` beside it is exact. json, jsonl and parquet hold
    texts exactly; md and csv show them (`texts.visible`), and in csv none is a formula. On a terminal a table
    ends after `PAGE` rows, with a note.
    """
    rows = map(row_of, values)
    if call.format == "parquet":
        _parquet(call, columns, rows)
        return
    drawn = call.output is None and sys.stdout.isatty()
    with sink(call) as out:
        if call.format == "table":
            write_table(out, call, columns, rows, drawn=drawn)
        else:
            _text(out, call, columns, rows, run, as_of)


def write_table(
    out: Out,
    call: CommandContext,
    columns: Sequence[Column],
    values: "Iterable[Row | DataclassInstance]",
    *,
    drawn: bool,
) -> None:
    """Rows for a person: `drawn` on a terminal, else aligned text."""
    rows = map(row_of, values)
    if not drawn:
        page, lines = _page(columns, rows)
        wide, right = widths(page), on_the_right(page)
        for line in chain(page, lines):
            out.write(padded(line, wide, right))
        return
    shown, _ = _page(columns, rows)
    draw(stdout(call), columns, shown)
    if next(rows, None) is not None:
        say(call, f"only the first {PAGE:,} rows; all of them with -o FILE, or in a pipe")


def _text(
    out: Out,
    call: CommandContext,
    columns: Sequence[Column],
    rows: Iterator[Row],
    run: str | None,
    as_of: Point | None,
) -> None:
    match call.format:
        case "json":
            _json(out, call, rows, run, as_of)
        case "csv":
            names, flat = _flat(columns, rows)
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(map(csv_text, names))
            writer.writerows([_shown(line[name]) for name in names] for line in flat)
        case "jsonl":
            for row in rows:
                out.write(json_line(row) + "\n")
        case _:
            page, lines = _page(columns, rows)
            out.write(markdown_line(page[0]) + markdown_rule(on_the_right(page)))
            for line in chain(page[1:], lines):
                out.write(markdown_line(line))


def _page(columns: Sequence[Column], rows: Iterator[Row]) -> tuple[list[list[str]], Iterator[list[str]]]:
    """The headings and the first rows, which determine a table's shape; and the rest."""
    lines = (cells(columns, row) for row in rows)
    return [[visible(column.heading, one_line=True) for column in columns], *islice(lines, PAGE)], lines


def _shown(value: Any) -> Any:
    return csv_text(value) if isinstance(value, str) else value


def _flat(columns: Sequence[Column], rows: Iterator[Row]) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """Rows for csv and parquet: fractions in two columns, nested values as JSON text.

    A word among fractions (τ up to "any") appears only in the exact column.
    """
    page = list(islice(rows, PAGE))
    keys = dict.fromkeys([*(c.key for c in columns), *(key for row in page for key in row)])
    exact = {key for key in keys if any(isinstance(row.get(key), Fraction) for row in page)}
    names = [name for key in keys for name in ((key, f"{key}_exact") if key in exact else (key,))]

    def line(row: Row) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for key in keys:
            value = row.get(key)
            if key in exact:
                flat[f"{key}_exact"] = None if value is None else str(value)
                value = None if value is None or isinstance(value, str) else float(value)
            elif not (value is None or isinstance(value, str | int | float)):
                value = _finite(plain(value))
            flat[key] = json_text(value) if isinstance(value, dict | list) else value
        return flat

    return names, map(line, chain(page, rows))


def json_line(row: Row, indent: int | None = None) -> str:
    """A row as JSON. Infinities and NaN, which JSON does not have, are null."""
    finite = {key: _finite(value) for key, value in row.items()}
    return json_text(finite, indent=indent, default=plain)


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case list():
            return [_finite(item) for item in value]
        case dict():
            return {key: _finite(item) for key, item in value.items()}
    return value


def _json(out: Out, call: CommandContext, rows: Iterator[Row], run: str | None, as_of: Point | None) -> None:
    """The envelope, its list filled a row at a time. It is held back until the last row is read: if a
    later one fails, stdout has only the error."""
    before, _, after = dump(envelope(call.schema, [], run=run, as_of=as_of)).rpartition("[]")
    with tempfile.SpooledTemporaryFile(HELD, "w+", encoding="utf-8", newline="") as held:
        held.write(before + "[")
        comma = ""
        for row in rows:
            held.write(f"{comma}\n    " + json_line(row, indent=2).replace("\n", "\n    "))
            comma = ","
        held.write(("\n  ]" if comma else "]") + after + "\n")
        held.seek(0)
        shutil.copyfileobj(held, out)


def _parquet(call: CommandContext, columns: Sequence[Column], rows: Iterator[Row]) -> None:
    """One row group in memory at a time."""
    if call.output is None:
        raise ConfigError("parquet cannot be printed", hint="name a file: -o rows.parquet")
    with extra("polars", "--format parquet"):
        from polars.io.plugins import register_io_source

    names, flat = _flat(columns, rows)
    group = list(islice(flat, GROUP))
    types = {name: _type([line[name] for line in group]) for name in names}
    groups = chain([group], iter(lambda: list(islice(flat, GROUP)), []))
    with opened(call.output, "wb") as file:
        register_io_source(lambda *_: (_frame(g, types) for g in groups), schema=types).sink_parquet(file)


def _frame(group: Sequence[Row], types: "Mapping[str, type[polars.DataType]]") -> "polars.DataFrame":
    import polars

    def values(name: str) -> list[Any]:
        found = [line[name] for line in group]
        return [None if v is None else str(v) for v in found] if types[name] == polars.String else found

    try:
        return polars.DataFrame([polars.Series(name, values(name), type_) for name, type_ in types.items()])
    except TypeError as error:
        raise ConfigError(
            f"a column has values of several types: {error}", hint="csv and jsonl accept any value"
        ) from error


def _type(values: Sequence[Any]) -> "type[polars.DataType]":
    """The type of a column: text if it has no values yet, or values of several types."""
    import polars

    found = {type(value) for value in values if value is not None}
    if found == {bool}:
        return polars.Boolean
    if found == {int} and all(-(2**63) <= value < 2**63 for value in values if value is not None):
        return polars.Int64
    return polars.Float64 if found in ({float}, {int, float}) else polars.String
