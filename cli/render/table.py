"""Rows for people: aligned text, Markdown, and on a terminal a table, or cards if it is too narrow."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.text.escaping import json_text, markdown_text, visible
from diagevo.text.numbers import number

from .console import plain
from .layout import broken, unbroken

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WORD = 24
"""Cells of the longest value that stays in one row: `8 → 13`, a date, a name. A longer one is running text,
and wraps."""

_NONE = "–"
"""Shown in place of a missing value."""
_WIDE = 80
"""Cells of a running text beyond which it gets no more room than the others."""


_FIGURES = re.compile(r"[-−+±≤≥<>=→|/.,%–?\d\s]*")
"""A value of only digits and signs: a column of these is right-aligned."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of rows: the key in each row, its heading, and how a person reads it."""

    key: str
    heading: str
    digits: int = 3
    show: Callable[[Any], str] | None = None
    """How a person sees a value, if not the default."""
    always: bool = False
    """Whether a terminal shows it even if no row has a value."""


def columns(described: str, **show: Callable[[Any], str]) -> tuple[Column, ...]:
    """Columns from "key, key: heading, key: heading: digits, …"; the default heading is the key. `show`:
    how a person sees the values of a key."""
    found = []
    for part in described.split(","):
        key, *rest = (word.strip() for word in part.split(":"))
        digits = int(rest[1]) if len(rest) > 1 else 3
        found.append(Column(key, rest[0] if rest else key, digits, show.get(key)))
    return tuple(found)


def _cell(value: Any, digits: int) -> str:
    match value:
        case None:
            return _NONE
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
    """A row for people, one text per column."""
    values = ((c, row.get(c.key)) for c in columns)
    return [_cell(value if c.show is None else c.show(value), c.digits) for c, value in values]


def on_the_right(lines: Sequence[Sequence[str]]) -> list[bool]:
    """For each column, whether its values are all figures."""
    columns = zip(*lines, strict=True)
    return [bool(values) and all(map(_FIGURES.fullmatch, values)) for _, *values in columns]


def widths(lines: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(*lines, strict=True)]


def padded(line: Sequence[str], wide: Sequence[int], right: Sequence[bool]) -> str:
    """A line of cells in columns of these widths, two spaces apart; a longer cell is not cut."""
    from rich.cells import cell_len

    out = []
    for text, width, behind in zip(line, wide, right, strict=True):
        gap = " " * (width - cell_len(text))
        out.append(gap + text if behind else text + gap)
    return "  ".join(out).rstrip() + "\n"


def markdown_line(line: Sequence[str]) -> str:
    return "| " + " | ".join(map(markdown_text, line)) + " |\n"


def markdown_rule(right: Sequence[bool]) -> str:
    return "|" + "|".join("---:" if behind else "---" for behind in right) + "|\n"


def draw(console: "Console", columns: Sequence[Column], lines: Sequence[Sequence[str]]) -> None:
    """Print `lines`, headings first: as a table if its words fit, else a small card per row.

    A column without any value is left out.
    """
    from rich.text import Text

    kept = [
        place
        for place, (_, *values) in enumerate(zip(*lines, strict=True))
        if columns[place].always or not values or set(values) != {_NONE}
    ]
    lines = [[line[n] for n in kept] for line in lines]
    for narrow in (False, True):
        table = _table(lines, narrow=narrow)
        if sum(column.min_width or 0 for column in table.columns) + 2 * (len(kept) - 1) > console.width:
            continue
        if table.__rich_measure__(console, console.options.update(width=sys.maxsize)).maximum > console.width:
            table.expand = True  # the rest goes to the running texts, each at least as wide as it must be
            for column in table.columns:
                column.width = column.min_width if column.ratio else None
        console.print(table)
        return
    for line in lines[1:]:
        console.print(Text(_card(lines[0], line, console.width)))


def _table(lines: Sequence[Sequence[str]], *, narrow: bool) -> "Table":
    """Only running texts wrap. `narrow`: headings break between their words, too."""
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    right = on_the_right(lines)
    for place, (heading, *values) in enumerate(zip(*lines, strict=True)):
        wide = max(map(cell_len, values), default=0)
        longest = max((cell_len(word) for value in values for word in value.split()), default=0)
        running = wide > _WORD and (place > 0 or longest < wide)  # the row's name is not cut
        breaks = narrow and cell_len(heading) > wide
        title = broken(heading, max(wide, *map(cell_len, unbroken(heading)))) if breaks else [heading]
        least = max(_WORD, longest if place == 0 else 0) if running else wide
        table.add_column(
            Text("\n".join(title)),
            justify="right" if right[place] else "left",
            no_wrap=not running,
            overflow="fold",
            min_width=max(least, *map(cell_len, title)),
            ratio=min(wide, _WIDE) if running else None,
        )
    for line in lines[1:]:
        table.add_row(*map(Text, line))
    return table


def _card(headings: Sequence[str], line: Sequence[str], width: int) -> str:
    """The row's name, and below it each of its values, beside its heading."""
    rows, packed = broken(f"{headings[0]} {line[0]}".strip(), width), ""
    for heading, value in zip(headings[1:], line[1:], strict=True):
        if value in (_NONE, ""):
            continue
        item = f"{heading}{':' if heading and len(value) > _WORD else ''} {value}".strip()
        if packed and len(packed) + len(item) + 5 > width:
            rows += [f"  {row}" for row in broken(packed, width - 2)]
            packed = item
        else:
            packed = f"{packed} · {item}" if packed else item
    return "\n".join([*rows, *(f"  {row}" for row in broken(packed, width - 2) if row)])
