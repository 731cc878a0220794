"""What a figure is: rows, the chart that shows them, and a caption that says how they were measured."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagevo.report.material import Material
from diagevo.report.style import HEIGHT, SERIES, WIDTH, altair, colours

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Figure:
    """A figure that lacks nothing. `chart` draws it, an Altair chart; `rows` are its data, as written beside
    it."""

    chart: Callable[[], Any]
    rows: Rows
    caption: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a figure cannot be drawn yet, and the command that supplies what is missing, if one does."""

    reason: str
    command: str | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A figure of the report by name. `draw` takes the materials of one run or several: the first is the
    report's own, others are drawn beside it where the figure compares runs."""

    name: str
    title: str
    draw: Callable[[Sequence[Material]], Figure | Missing]


def no_rounds(material: Material) -> Missing:
    return Missing("no round is committed yet", material.next_round)


def setting(materials: Sequence[Material], rows: Rows) -> str:
    """Where a figure's rows were measured, for its caption: the first run with some, and those beside it."""
    shown = {row["run"] for row in rows}
    first, *others = [material for material in materials if material.run_id in shown]
    names = ", ".join(f"run {material.run_id}" for material in others)
    return first.setting + (f" Beside it: {names}." if others else "")


def bottom_legend(**more: Any) -> Any:
    """Every legend stands below its figure, in one line."""
    alt = altair()

    return alt.Legend(orient="bottom", title=None, **more)


def span(values: Iterable[float], *, zero: bool = False, most: float | None = None) -> Any:
    """A scale around the values with room at both ends, not beyond what the unit allows."""
    alt = altair()
    found = list(values) or [0.0]  # z of a run whose every round had F = 0
    low, high = (0.0 if zero else min(found)), max(found)
    room = 0.07 * (high - low) or 0.05 * abs(high) or 1.0
    low = 0.0 if zero else max(0.0, low - room)
    return alt.Scale(domain=[low, min(high + room, most) if most is not None else high + room], nice=False)


def data(rows: Rows) -> Any:
    alt = altair()

    return alt.Data(values=rows)


def x_round(title: str = "round") -> Any:
    """Rounds on the x axis, whole numbers without a label between them."""
    alt = altair()

    return alt.X("round:O", title=title, axis=alt.Axis(labelAngle=0))


def sized(chart: Any, width: int = WIDTH, height: int = HEIGHT) -> Any:
    return chart.properties(width=width, height=height)


DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross")


def lines(
    rows: Rows,
    y: str,
    title: str,
    field: str,
    family: Mapping[str, str],
    *,
    runs: int = 1,
    zero: bool = False,
    most: float | None = None,
    band: tuple[str, str] | None = None,
) -> Any:
    """Lines with marks by round, and error bars where `band` names their columns.

    `field` names the series and `family` their colours; each also has a dash and a mark of its own, told in
    one legend. With several runs in one figure the dash and the mark tell the run instead. `most` is the
    greatest value that the unit allows.
    """
    alt = altair()
    names = [name for name in family if any(row[field] == name for row in rows)]
    legend = bottom_legend(symbolSize=130, symbolStrokeWidth=0) if len(names) > 1 else None
    scale = span((row[c] for row in rows for c in (y, *(band or ()))), zero=zero, most=most)
    base = alt.Chart(data(rows)).encode(x=x_round(), y=alt.Y(f"{y}:Q", title=title, scale=scale))
    colour = alt.Color(f"{field}:N", title=None, legend=legend, scale=colours(family, names))
    by, told, dash_legend = field, names, legend
    if runs > 1 and field != "run":
        by, told = "run", list(dict.fromkeys(row["run"] for row in rows))
        dash_legend = alt.Legend(
            orient="bottom", title="run", titleOrient="left", symbolSize=130, symbolStrokeWidth=0
        )
    dashes = alt.Scale(domain=told, range=[DASHES[i % len(DASHES)] for i in range(len(told))])
    shapes = alt.Scale(domain=told, range=[SHAPES[i % len(SHAPES)] for i in range(len(told))])
    dash = alt.StrokeDash(f"{by}:N", legend=dash_legend, scale=dashes)
    shape = alt.Shape(f"{by}:N", legend=dash_legend, scale=shapes)
    layers = [
        base.mark_line(strokeWidth=2).encode(color=colour, strokeDash=dash),
        base.mark_point(filled=True, size=60, opacity=1).encode(color=colour, shape=shape),
    ]
    if band is not None:
        bounds = {"y": alt.Y(f"{band[0]}:Q", title=title, scale=scale), "y2": f"{band[1]}:Q"}
        layers.append(base.mark_rule(strokeWidth=1).encode(color=colour, **bounds))
    return alt.layer(*layers)


def by_order(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name that has none of its own, in the order they are named."""
    return {name: SERIES[i % len(SERIES)] for i, name in enumerate(dict.fromkeys(names))}


def percent(share: float) -> float:
    return round(100 * share, 3)
