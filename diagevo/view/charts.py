"""Lines and steps as numbers for an SVG: the template draws them, in the colours of the theme."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

WIDTHS = {"wide": 640, "narrow": 320}
"""Widths in pixels when a chart fills its place: on a desktop, and on a phone."""
HEIGHT = 220
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 12, 28
_TICKS = 5
_APART = 45
"""Minimum distance between two labels below."""
_TO = "–"
"""Separates the first and the last step of a point; the label below shows the first."""
POINTS = 200
"""Maximum rounds or steps of a chart; with more, a point is the mean of consecutive ones."""
STYLES = 8
"""Distinguishable line styles, also in grey: `s1` to `s8` of the style sheet."""


@dataclass(frozen=True, slots=True)
class Series:
    """A series; the line passes over a value of None."""

    name: str
    values: Sequence[float | None]
    style: int | None = None
    """Which of STYLES; by position by default."""


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A point, with the label shown on hover."""

    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A series in the chart's own units."""

    name: str
    style: int
    path: str
    marks: tuple[ChartPoint, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart at one width."""

    name: str
    width: int
    lines: tuple[Curve, ...]
    across: tuple[tuple[float, str], ...]
    """Ticks of rounds or steps: position and label."""
    up: tuple[tuple[float, str], ...]
    """Ticks of values: position and label."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Some series over rounds or steps, drawn for each width."""

    title: str
    names: tuple[tuple[str, int], ...]
    """Of the series, with their styles."""
    drawings: tuple[Drawing, ...]
    rows: tuple[tuple[str, ...], ...]
    """The underlying figures, one row per round, under a header."""


def _step(low: float, high: float) -> float:
    """Between two ticks: the least of 1, 2, 2.5 or 5 times a power of ten that reaches the highest value."""
    least = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    return next(n * power for n in (1, 2, 2.5, 5, 10) if n * power >= least * (1 - 1e-9))


def _joined(
    rounds: Sequence[int | str], lines: Sequence[Series], every: int
) -> tuple[list[int | str], list[Series]]:
    """Every `every` rounds or steps merged into one."""
    parts = [slice(start, start + every) for start in range(0, len(rounds), every)]

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    spans = [rounds[part] for part in parts]
    return (
        [span[0] if len(span) == 1 else f"{span[0]}{_TO}{span[-1]}" for span in spans],
        [replace(line, values=[mean(line.values[part]) for part in parts]) for line in lines],
    )


def chart(
    title: str,
    rounds: Sequence[int | str],
    lines: Sequence[Series],
    *,
    percent: bool = False,
    over: str = "round",
) -> Chart | None:
    """A chart, or None if no series has a value. `over`: the unit of the x axis. The y axis begins at 0, or
    at a tick below negative values. With more than POINTS, means are drawn."""
    if (every := -(-len(rounds) // POINTS)) > 1:
        title = f"{title}: means of {every} {over}s"
        rounds, lines = _joined(rounds, lines, every)
    known = [value for line in lines for value in line.values if value is not None]
    if not known or not rounds:
        return None
    low = 0.5 if percent and min(known) > 0.5 else 0.0
    most = 1.0 if percent and max(known) > 0.5 else max(known) or float(min(known) == 0)
    below = min(low, min(known))
    step = _step(below, max(most, low))
    low += step * math.floor((below - low) / step)
    ticks = max(_TICKS, math.ceil((most - low) / step - 1e-9))
    high = low + ticks * step

    def tick(value: float) -> str:
        return f"{value:.3g}" if not percent else f"{100 * value:.3g}%"

    def written(value: float | None) -> str:
        if value is None:
            return "–"
        if not percent and 0 < abs(value) < 0.1:
            return f"{value:.3g}"
        return f"{value:.1%}" if percent else f"{value:,.3f}".rstrip("0").rstrip(".")

    shown = [line for line in lines if any(value is not None for value in line.values)]
    styles = [
        (line.style if line.style is not None else place) % STYLES + 1 for place, line in enumerate(shown)
    ]
    up = [low + step * n for n in range(ticks + 1)]

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low)), 1)

    def drawing(name: str, width: int) -> Drawing:
        def x(place: int) -> float:
            span = max(1, len(rounds) - 1)
            return round(LEFT + (width - LEFT - RIGHT) * (place / span if len(rounds) > 1 else 0.5), 1)

        def curve(line: Series, style: int) -> Curve:
            marks: list[ChartPoint] = []
            path: list[str] = []
            for place, value in enumerate(line.values):
                if value is not None:
                    path.append(f"{'L' if path else 'M'}{x(place)} {y(value)}")
                    marks.append(
                        ChartPoint(
                            x(place), y(value), f"{over} {rounds[place]}: {line.name} {written(value)}"
                        )
                    )
            return Curve(line.name, style, " ".join(path), tuple(marks))

        every = max(1, -(-len(rounds) * _APART // width))
        return Drawing(
            name,
            width,
            tuple(map(curve, shown, styles)),
            tuple(
                (x(place), str(number).partition(_TO)[0])
                for place, number in enumerate(rounds)
                if place % every == 0
            ),
            tuple((y(value), tick(value)) for value in up),
        )

    return Chart(
        title,
        tuple((line.name, style) for line, style in zip(shown, styles, strict=True)),
        tuple(drawing(name, width) for name, width in WIDTHS.items()),
        (
            (over, *(line.name for line in shown)),
            *(
                (str(number), *(written(line.values[place]) for line in shown))
                for place, number in enumerate(rounds)
            ),
        ),
    )
