"""Lines and steps as numbers for an SVG: the template draws them, in the colours of the theme."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 12, 28
_TICKS = 5
STYLES = 4
"""Lines of a picture that look different, in grey too: `s1` to `s4` of the style sheet."""


@dataclass(frozen=True, slots=True)
class Series:
    """A series; a value of None leaves a gap."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Mark:
    """A point, with what is said where the pointer rests on it."""

    x: float
    y: float
    said: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A series in the picture's own units."""

    name: str
    path: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of some series over rounds or steps."""

    title: str
    lines: tuple[Curve, ...]
    across: tuple[tuple[float, str], ...]
    """Rounds or steps: where, and what stands there."""
    up: tuple[tuple[float, str], ...]
    """Values: where, and what stands there."""
    rows: tuple[tuple[str, ...], ...]
    """The figures behind it, a row a round, headed by the first."""


def _step(low: float, high: float) -> float:
    """Between two ticks: the least of 1, 2, 2.5 or 5 times a power of ten that reaches the highest value."""
    least = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    return next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= least * (1 - 1e-9))


def chart(
    title: str, rounds: Sequence[int], lines: Sequence[Series], *, percent: bool = False, over: str = "round"
) -> Chart | None:
    """A chart, or None where no series has a value. `over`: what is counted from left to right."""
    known = [value for line in lines for value in line.values if value is not None]
    if not known or not rounds:
        return None
    low = 0.5 if percent and min(known) > 0.5 else 0.0
    step = _step(low, 1.0 if percent and max(known) > 0.5 else max(known) or 1.0)
    high = low + _TICKS * step

    def tick(value: float) -> str:
        return f"{value:.3g}" if not percent else f"{100 * value:.3g}%"

    def said(value: float | None) -> str:
        if value is None:
            return "–"
        return f"{value:.1%}" if percent else f"{value:,.3f}".rstrip("0").rstrip(".")

    def x(place: int) -> float:
        span = max(1, len(rounds) - 1)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (place / span if len(rounds) > 1 else 0.5), 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low)), 1)

    drawn: list[Curve] = []
    for line in lines:
        marks: list[Mark] = []
        path: list[str] = []
        pen_up = True
        for place, value in enumerate(line.values):
            if value is None:
                pen_up = True
                continue
            path.append(f"{'M' if pen_up else 'L'}{x(place)} {y(value)}")
            pen_up = False
            marks.append(Mark(x(place), y(value), f"{over} {rounds[place]}: {line.name} {said(value)}"))
        if marks:
            drawn.append(Curve(line.name, " ".join(path), tuple(marks)))
    every = max(1, len(rounds) // 12)
    return Chart(
        title,
        tuple(drawn),
        tuple((x(place), str(number)) for place, number in enumerate(rounds) if place % every == 0),
        tuple((y(low + step * n), tick(low + step * n)) for n in range(_TICKS + 1)),
        (
            (over, *(line.name for line in lines)),
            *(
                (str(number), *(said(line.values[place]) for line in lines))
                for place, number in enumerate(rounds)
            ),
        ),
    )
