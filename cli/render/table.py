"""Rows for people: aligned text, Markdown, and on a terminal a table while its words have room."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from diagevo.shown import number
from diagevo.texts import json_text, markdown_text, visible

from .console import plain
from .layout import broken, folded, unbroken

if TYPE_CHECKING:
    from rich.console import Console

_WORD = 24
"""Cells of the longest value that a table keeps in one row: `8 → 13`, a date, a name of words."""
_TEXT = 48
"""Cells of a running text; of one as long a table has room for `_WORD` in a line."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of rows: the key in each row, its heading, and how a person reads it."""

    key: str
    title: str | None = None
    align: Literal["left", "right"] = "left"
    digits: int = 3
    names: bool = False
    """Whether it names the row, as the first column does; in a table in parts it is in each."""
    beside: bool = False
    """Whether it is read with the column before it, and stays beside it."""
    show: Callable[[Any], str] | None = None
    """How a person sees a value, where not as every other."""

    @property
    def heading(self) -> str:
        return self.title if self.title is not None else self.key


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
    values = ((c, row.get(c.key)) for c in columns)
    return [_cell(value if c.show is None else c.show(value), c.digits) for c, value in values]


def headings(columns: Sequence[Column]) -> list[str]:
    return [column.heading for column in columns]


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
    lines = [headings(columns), *(cells(columns, row) for row in values)]
    wide = widths(lines)
    return "".join(padded(columns, line, wide) for line in lines)


def markdown_head(columns: Sequence[Column]) -> str:
    rule = "|" + "|".join("---:" if c.align == "right" else "---" for c in columns) + "|\n"
    return markdown_line(headings(columns)) + rule


def markdown_line(line: Sequence[str]) -> str:
    return "| " + " | ".join(map(markdown_text, line)) + " |\n"


def draw(
    console: "Console", columns: Sequence[Column], lines: Sequence[Sequence[str]], title: str | None
) -> None:
    """Print `lines`, the headings first. A table whose words do not fit is tried without its margins, then in
    parts, each with the columns that name the rows."""
    parts = _parts(columns, lines, console.width)
    if parts is None:
        _records(console, lines, title)
        return
    for part in parts:
        _draw(console, [columns[i] for i in part], [[line[i] for i in part] for line in lines], title)
        title = None


def _parts(columns: Sequence[Column], lines: Sequence[Sequence[str]], width: int) -> list[list[int]] | None:
    """The columns of each part of a table, by place: one part if they fit; None where names alone do not."""
    every = list(range(len(columns)))

    def fits(part: list[int]) -> bool:
        return _laid_out([[line[i] for i in part] for line in lines], width) is not None

    if fits(every):
        return [every]
    named = [i for i in every if i == 0 or columns[i].names]
    parts = [named]
    for place in every:
        if place in named or columns[place].beside:
            continue
        group = [place, *takewhile(lambda i: columns[i].beside, every[place + 1 :])]
        if len(parts[-1]) == len(named) or fits([*parts[-1], *group]):
            parts[-1] = [*parts[-1], *group]
        else:
            parts.append([*named, *group])
    return parts if all(map(fits, parts)) else None


def _laid_out(lines: Sequence[Sequence[str]], width: int) -> tuple[int, list[int]] | None:
    """Margins and the columns' widths; None where even without margins words would be cut."""
    for padding in (1, 0):
        frame = len(lines[0]) * (1 + 2 * padding) + 1
        if (wide := _fitted(lines, width - frame)) is not None:
            return padding, wide
    return None


def _draw(
    console: "Console", columns: Sequence[Column], lines: Sequence[Sequence[str]], title: str | None
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    laid_out = _laid_out(lines, console.width)
    assert laid_out is not None
    padding, wide = laid_out
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, padding),
    )
    if title is not None:
        console.print(Text(folded(title, console.width)))
    for column, width in zip(columns, wide, strict=True):
        heading = "\n".join(broken(column.heading, width))
        table.add_column(Text(heading), justify=column.align, overflow="fold", width=width)
    for line in lines[1:]:
        table.add_row(*(Text("\n".join(broken(cell, width))) for cell, width in zip(line, wide, strict=True)))
    console.print(table)


def _fitted(lines: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths of columns that have `room` together and break no value; None where there is too little of it.

    Rich alone takes from the widest column first, whatever its words are: `ope/n-l/oop`. Headings, and texts
    of more than `_WORD` cells, break between words. A path or a hash may be cut, but not in the first column,
    which names the row.
    """
    from rich.cells import cell_len

    whole = widths(lines)
    longest = [
        max(
            map(cell_len, [*unbroken(heading), *(piece for cell in column for piece in _kept(cell))]),
            default=0,
        )
        for heading, *column in zip(*lines, strict=True)
    ]
    least = [_WORD if all_ > _TEXT else word for all_, word in zip(whole, longest, strict=True)]
    found = [longest[0], *(min(width, _WORD) for width in least[1:])]
    spare = room - sum(found)
    if spare < 0:
        return None
    wanting = sorted(range(len(found)), key=lambda column: whole[column] - found[column])
    for place, column in enumerate(wanting):
        more = min(whole[column] - found[column], spare // (len(found) - place))
        found[column] += more
        spare -= more
    return found


def _kept(cell: str) -> list[str]:
    """What of a cell stays in one row."""
    from rich.cells import cell_len

    return [cell] if cell_len(cell) <= _WORD else cell.split()


def _records(console: "Console", lines: Sequence[Sequence[str]], title: str | None) -> None:
    """A line a value, an empty line between two rows."""
    from rich.text import Text

    if title is not None:
        console.print(Text(folded(title, console.width)))
    names, *rows = lines
    for place, row in enumerate(rows):
        if place:
            console.print()
        for name, cell in zip(names, row, strict=True):
            console.print(Text(folded(f"{name}: {cell}" if name else cell, console.width)))
