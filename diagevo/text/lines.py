"""A line of a story, laid out by the terminal and linked by a page."""

from collections.abc import Sequence
from dataclasses import dataclass

_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True, slots=True)
class Line:
    """`text` is the program's own, and its ids can be linked; `words` come from models, data sets or
    users."""

    label: str
    text: str = ""
    position: int | None = None
    """The event's position in the log."""
    depth: int = 0
    """1 is evidence under the line above."""
    mark: str = ""
    """What is wrong with it, if anything: its label is false, or its answer right."""
    words: str = ""
    """Including the separator from the text: `: …`."""

    @property
    def whole(self) -> str:
        mark = f" · {self.mark}" if self.mark else ""
        return f"{self.text}{mark}{self.words}".removeprefix(" · ")


def sub(number: int) -> str:
    """A number as a subscript: ε₄."""
    return str(number).translate(_SUBSCRIPTS)


def listed(words: Sequence[str], most: int = 8) -> str:
    """Names with commas, the rest as a number."""
    left = len(words) - most
    return ", ".join(words[:most]) + (f" and {left} more" if left > 0 else "")
