"""Screens of labelled lines: a label, words that may wrap under themselves, and the position of the event."""

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .console import visible

ROWS = (4, 2)
"""Rows that a text of a story may take, where more than a screen would be told otherwise."""
SCREEN = 23
"""Lines of a story on a terminal of 24, which keeps one for the prompt."""
_BESIDE = 28
"""Columns that the label and the position of a line take at most."""
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def sub(number: int) -> str:
    """A number as a subscript: ε₄."""
    return str(number).translate(_SUBSCRIPTS)


def count(number: int, one: str, many: str | None = None) -> str:
    """ "1 failure", "2 failures"."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def listed(words: Sequence[str], most: int = 8) -> str:
    """Names with commas, the rest as a number."""
    left = len(words) - most
    return ", ".join(words[:most]) + (f" and {left} more" if left > 0 else "")


def width() -> int | None:
    """Columns of the terminal; None in a pipe, where nothing is wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a story. `depth` 1 is evidence under the line above."""

    label: str
    text: str
    position: int | None = None
    depth: int = 0


def lay(lines: Iterable[Line], columns: int | None) -> str:
    """Lines with labels and positions in columns. Words wrap under themselves where `columns` is given."""
    listed_ = list(lines)
    labels = max((_cells(line.label) + line.depth * 2 for line in listed_), default=0)
    marks = [f"#{line.position}" if line.position is not None else "" for line in listed_]
    mark = max((len(m) for m in marks), default=0)
    longest = max((_cells(line.text) for line in listed_), default=0)
    room = longest if columns is None else max(24, min(longest, columns - labels - mark - 6))
    out: list[str] = []
    for line, position in zip(listed_, marks, strict=True):
        label = " " * (1 + 2 * line.depth) + line.label
        for index, piece in enumerate(_wrapped(visible(line.text, one_line=True), room)):
            head = label if index == 0 else ""
            tail = position if index == 0 else ""
            gap = " " * (room - _cells(piece) + 2 + mark - len(tail)) if tail else ""
            out.append(f"{head}{' ' * (labels + 3 - _cells(head))}{piece}{gap}{tail}".rstrip())
    return "\n".join(out) + "\n"


def wrapped(text: str, indent: str, columns: int | None) -> str:
    """A text of a model: its own lines kept, each indented, and wrapped where `columns` is given."""
    out = []
    for line in visible(text).split("\n"):
        pieces = [line] if columns is None else _wrapped(line, max(24, columns - len(indent)))
        out += [f"{indent}{piece}".rstrip() for piece in pieces]
    return "\n".join(out) + "\n"


def heading(title: str, mark: str, columns: int | None) -> str:
    """The first line of a story: its title, and a mark at the right edge, or below where it has no room."""
    title = visible(title, one_line=True)
    gap = 6 if columns is None else columns - _cells(title) - len(mark)
    if gap < 2:
        return f"{wrapped(title, '', columns)}{mark}\n"
    return f"{title}{' ' * gap}{mark}\n"


def fits(text: str) -> bool:
    """Whether a story is seen whole on a terminal."""
    return text.count("\n") <= SCREEN


def cut(text: str, columns: int | None, rows: int = 1) -> str:
    """`text` in so many rows of a terminal, or whole in a pipe; a row breaks at a word, hence the margin."""
    from rich.cells import chop_cells

    if columns is None:
        return visible(text, one_line=True)
    room = max(24, columns * rows - 12 * (rows - 1))
    # A sign may have no width; nobody writes three such a letter.
    start = visible(text[: 4 * room], one_line=True)
    if len(text) <= 4 * room and _cells(start) <= room:
        return start
    return chop_cells(start, room - 1)[0] + "…"


def cut_lines(lines: list[Line], columns: int | None, rows: int) -> list[Line]:
    """Lines of so many rows beside their labels and positions."""
    room = None if columns is None else columns - _BESIDE
    return [replace(line, text=cut(line.text, room, rows)) for line in lines]


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _wrapped(text: str, room: int) -> list[str]:
    """`text` cut at spaces into pieces of at most `room` cells; a longer word is cut anywhere."""
    from rich.cells import chop_cells

    pieces: list[str] = []
    line: list[str] = []
    taken = 0
    for word in text.split(" "):
        cells = _cells(word)
        if line and taken + 1 + cells <= room:
            line.append(word)
            taken += 1 + cells
            continue
        if line:
            pieces.append(" ".join(line))
        *full, word = chop_cells(word, room) if cells > room else [word]
        pieces += full
        line, taken = [word] if word else [], _cells(word)
    return [*pieces, " ".join(line)]
