"""Rows on a terminal: a table while its words have room, then a line a value."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from . import console as render

if TYPE_CHECKING:
    from rich.console import Console

_WORD = 24
"""Cells of the longest word that a table keeps whole outside its first column."""


def draw(
    console: "Console", columns: Sequence[render.Column], lines: Sequence[Sequence[str]], title: str | None
) -> None:
    """Print `lines`, the headings first. A table whose words do not fit is tried without its margins."""
    for padding in (1, 0):
        frame = len(columns) * (1 + 2 * padding) + 1
        wide = _fitted(lines, console.width - frame)
        if wide is not None:
            break
    else:
        _records(console, lines, title)
        return
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, padding),
        title=None if title is None else Text(title),
        title_justify="left",
    )
    for column, width in zip(columns, wide, strict=True):
        table.add_column(Text(column.heading), justify=column.align, overflow="fold", width=width)
    for line in lines[1:]:
        table.add_row(*map(Text, line))
    console.print(table)


def _fitted(lines: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths of columns that have `room` together and cut no word; None where there is too little of it.

    Rich alone takes from the widest column first, whatever its words are: `ope/n-l/oop`. A path or a hash
    may be cut, but not in the first column, which names the row.
    """
    whole = render.widths(lines)
    longest = [
        max((cell_len(word) for cell in column for word in cell.split()), default=0)
        for column in zip(*lines, strict=True)
    ]
    found = [longest[0], *(min(width, _WORD) for width in longest[1:])]
    spare = room - sum(found)
    if spare < 0:
        return None
    wanting = sorted(range(len(found)), key=lambda column: whole[column] - found[column])
    for place, column in enumerate(wanting):
        more = min(whole[column] - found[column], spare // (len(found) - place))
        found[column] += more
        spare -= more
    return found


def _records(console: "Console", lines: Sequence[Sequence[str]], title: str | None) -> None:
    """A line a value, an empty line between two rows."""
    if title is not None:
        console.print(Text(title))
    headings, *rows = lines
    for place, row in enumerate(rows):
        if place:
            console.print()
        for heading, cell in zip(headings, row, strict=True):
            console.print(Text(f"{heading}: {cell}" if heading else cell))
