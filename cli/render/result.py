"""What a command answers, and the one place where it is printed."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import typer

from diagevo.errors import ConfigError
from diagevo.text.escaping import visible

from ..call import CommandContext
from .console import Point, dump, envelope, marked, say, sink, stdout
from .layout import folded, width

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from .table import Column

T = TypeVar("T")
Values = Iterable["Mapping[str, Any] | DataclassInstance"]


@dataclass(frozen=True, slots=True)
class Rows:
    columns: "Sequence[Column]"
    values: Values


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """What a command answers. A program reads `data`; with `columns`, it also comes as rows."""

    data: T
    """The `data` of --json; None means there is none, and the text is printed as it is."""
    columns: "Sequence[Column]" = ()
    """The columns of the rows; without them the result is text, and text has no csv."""
    text: str | Sequence[str | Rows] | None = None
    """What a person sees, from top to bottom; None: the rows under their columns."""
    rows: Values | None = None
    """The rows, if they are not the data."""
    title: str | None = None
    """Printed first, on stderr; for a text the default is its run."""
    run: str | None = None
    as_of: Point | None = None
    notes: Iterable[str] = ()
    """Printed last, on stderr."""
    exit_code: int = 0


def emit(call: CommandContext, result: Result[Any]) -> None:
    """Print it as `--format` and `-o` require. Raises typer.Exit for its exit code, ConfigError if rows
    of a text are requested."""
    rows = result.data if result.rows is None else result.rows
    place = {"run": result.run, "as_of": result.as_of}
    if call.format == "json" and (not result.columns or result.rows is not None):
        text = result.text if result.data is None else dump(envelope(call.schema, result.data, **place))
        with sink(call) as out:
            out.write(str(text).rstrip("\n") + "\n")
    elif call.format not in ("json", "table") and not result.columns:
        raise ConfigError(
            f"this is text, not rows: it cannot be printed as {call.format}", hint="as JSON: --json"
        )
    elif call.format == "table" and result.text is not None:
        parts = [result.text] if isinstance(result.text, str) else result.text
        if (header := _header(result, parts[0] if parts and isinstance(parts[0], str) else "")) is not None:
            say(call, header)
        _print_screen(call, parts)
    else:
        if call.format == "table" and result.title is not None:
            say(call, result.title)
        elif call.format != "json" and call.run in (None, "latest") and (latest := _header(result, "")):
            say(call, latest)
        from .rows import print_rows

        print_rows(call, result.columns, rows, **place)
    for note in result.notes:
        say(call, note)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _header(result: Result[Any], text: str) -> str | None:
    """Which run this is about, if the text does not begin with it."""
    if result.run is None or text.startswith(result.run):
        return None
    after = f" after round {result.as_of.round}" if result.as_of and result.as_of.round else ""
    return f"run {result.run}{after}"


def _print_screen(call: CommandContext, parts: Sequence[str | Rows]) -> None:
    """Texts and tables, separated by empty lines."""
    drawn = call.output is None and sys.stdout.isatty()
    with sink(call) as out:
        for place, part in enumerate(parts):
            if place:
                out.write("\n")
            if isinstance(part, Rows):
                from .rows import write_table

                write_table(out, call, part.columns, part.values, drawn=drawn)
                continue
            shown = visible(part).rstrip("\n")
            if drawn:
                stdout(call).print(marked(folded(shown, width())), soft_wrap=True)
            else:
                out.write(shown + "\n")
