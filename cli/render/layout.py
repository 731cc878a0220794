"""Screens of labelled lines: a label, text with a hanging indent, and the position of the event."""

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TextIO

from diagevo.text.escaping import visible
from diagevo.text.lines import Line

ROWS = (4, 2)
"""Rows that a text of a story may take if it would not fit on a screen otherwise."""
SCREEN = 22
"""Lines of a story on a terminal of 24: one is for the run's name and one for the prompt."""
_HELD = re.compile(r"(?<=\S) ([=→≥≤<>]) (?=\S)")
_TOGETHER = 24
"""Cells of the longest comparison that stays in one row: `f = 3`, `8 → 13`."""


def width(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal behind stdout, or `stream`; None for a pipe, where nothing is wrapped."""
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else None


def lay(lines: Iterable[Line], columns: int | None) -> str:
    """Lines with labels and positions in columns. Text wraps with a hanging indent if `columns` is given."""
    listed_ = list(lines)
    labels, mark = _beside(listed_)
    longest = max((_cells(line.whole) for line in listed_), default=0)
    room = longest if columns is None else max(24, min(longest, columns - labels - mark - 6))
    out: list[str] = []
    for line in listed_:
        position = _mark(line)
        label = " " * (1 + 2 * line.depth) + line.label
        for index, piece in enumerate(broken(visible(line.whole, one_line=True), room)):
            head = label if index == 0 else ""
            tail = position if index == 0 else ""
            gap = " " * (room - _cells(piece) + 2 + mark - len(tail)) if tail else ""
            out.append(f"{head}{' ' * (labels + 3 - _cells(head))}{piece}{gap}{tail}".rstrip())
    return "\n".join(out) + "\n"


def wrapped(text: str, indent: str, columns: int | None) -> str:
    """A model's text: its own lines kept, each indented, and wrapped if `columns` is given."""
    out = []
    for line in visible(text).split("\n"):
        pieces = [line] if columns is None else broken(line, max(24, columns - len(indent)))
        out += [f"{indent}{piece}".rstrip() for piece in pieces]
    return "\n".join(out) + "\n"


def folded(text: str, columns: int | None) -> str:
    """Finished lines on a terminal: long ones break at a word and continue in the next row, indented. A
    word longer than a row and a line with a command stay as they are, so that they can be copied."""
    if columns is None:
        return text
    out: list[str] = []
    for line in text.split("\n"):
        if _cells(line) <= columns or re.search(r"\bdiagevo [a-z]", line):
            out.append(line)
            continue
        start = " " * (len(line) - len(line.lstrip(" ")) + 4)
        row, *words = unbroken(line)
        for word in words:
            if not row.strip() or _cells(row) + 1 + _cells(word) <= columns:
                row += f" {word}"
            elif word:
                out.append(row.rstrip())
                row = start + word
        out.append(row.rstrip())
    return "\n".join(out)


def heading(title: str, mark: str, columns: int | None) -> str:
    """The first line of a story: its title, and a mark at the right edge, or below if there is no room."""
    title = visible(title, one_line=True)
    gap = 6 if columns is None else columns - _cells(title) - len(mark)
    if gap < 2:
        return f"{wrapped(title, '', columns)}{mark}\n"
    return f"{title}{' ' * gap}{mark}\n"


def fits(text: str) -> bool:
    """Whether a story fits on a terminal."""
    return text.count("\n") <= SCREEN


def cut(text: str, columns: int | None, rows: int = 1) -> str:
    """`text` cut to this many rows of a terminal, or whole in a pipe; a row breaks at a word, hence the
    margin."""
    from rich.cells import chop_cells

    if columns is None:
        return visible(text, one_line=True)
    room = max(24, columns * rows - 12 * (rows - 1))
    # A sign may have zero width; nobody writes three of those per letter.
    start = visible(text[: 4 * room], one_line=True)
    if len(text) <= 4 * room and _cells(start) <= room:
        return start
    kept = chop_cells(start, room - 1)[0]
    return (kept.rpartition(" ")[0] if " " in kept[-_TOGETHER:] else kept).rstrip() + "…"


def cut_lines(
    lines: list[Line], columns: int | None, rows: int, among: Sequence[Line] | None = None
) -> list[Line]:
    """Lines cut to this many rows, given the widths of the labels and positions of the lines `among`
    which they appear."""
    room = None if columns is None else columns - sum(_beside(among or lines)) - 6
    return [replace(line, text=cut(line.whole, room, rows), mark="", words="") for line in lines]


def _mark(line: Line) -> str:
    return "" if line.position is None else f"#{line.position}"


def _beside(lines: Sequence[Line]) -> tuple[int, int]:
    """Cells of the widest label and of the widest position."""
    labels = max((_cells(line.label) + line.depth * 2 for line in lines), default=0)
    return labels, max((len(_mark(line)) for line in lines), default=0)


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def unbroken(text: str) -> Iterator[str]:
    """The units between which a row may break: words, and a sign with its two neighbours. In a longer chain
    each sign stays with what follows it."""
    for piece in _HELD.sub("\0\\1\0", text).split(" "):
        whole = piece.replace("\0", " ")
        if "\0" not in piece or len(whole) <= _TOGETHER:
            yield whole
        else:
            first, second, *signs = re.split(r"\0(?=[=→≥≤<>]\0)", piece)
            yield from (sign.replace("\0", " ") for sign in (f"{first} {second}", *signs))


def broken(text: str, room: int) -> list[str]:
    """`text` cut at spaces into pieces of at most `room` cells; a longer word is cut after a comma or a
    slash if it has one, else anywhere."""

    pieces: list[str] = []
    line: list[str] = []
    taken = 0
    for word in unbroken(text):
        cells = _cells(word)
        if line and taken + 1 + cells <= room:
            line.append(word)
            taken += 1 + cells
            continue
        if line:
            pieces.append(" ".join(line))
        *full, word = _chopped(word, room) if cells > room else [word]
        pieces += full
        line, taken = [word] if word else [], _cells(word)
    return [*pieces, " ".join(line)]


def _chopped(word: str, room: int) -> list[str]:
    from rich.cells import chop_cells

    pieces: list[str] = []
    taken = room
    for part in re.split(r"(?<=[,/])", word):
        cells = _cells(part)
        if taken + cells <= room:
            pieces[-1] += part
            taken += cells
            continue
        chopped = chop_cells(part, room) if cells > room else [part]
        pieces += chopped
        taken = _cells(chopped[-1]) if chopped else room
    return pieces
