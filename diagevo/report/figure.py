"""What a figure is: rows, the chart that shows them, and a caption that says how they were measured.

A colour means the same thing in every figure. Colours within a family differ in lightness, and lines also in
dash and mark, so that it can be read in black and white.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diagevo.errors import extra
from diagevo.report.report_data import Material
from diagevo.text.escaping import visible

STATES: Mapping[str, str] = {"Active": "#E07A2F", "Mastered": "#0B3C5D", "skill nodes": "#B5B5B5"}
MODES: Mapping[str, str] = {"free": "#9CC9E8", "targeted": "#D4691E", "stitched": "#4A1D66"}
CHANGES: Mapping[str, str] = {
    "created": "#F6D2B3",
    "promoted": STATES["Mastered"],
    "reactivated": STATES["Active"],
}
"""Changes of causes, in the colour of the state that they enter; created ones are lighter."""
SERIES: tuple[str, ...] = ("#1B1B1B", "#2A9D8F", "#B5477E", "#8C6D1F", "#7F7F7F")
"""Lines that are neither a state nor a mode, in the order they are named; none has a state's colour."""
GREY = "#8A8A8A"
INK = "#222222"
FONT = "Helvetica, Arial, sans-serif"
WIDTH, HEIGHT = 420, 260


def lightness(colour: str) -> float:
    """Relative luminance of a #RRGGBB colour in [0, 1]: its grey value (WCAG 2)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def altair() -> Any:
    """The drawing library, of the extra `report`."""
    with extra("report", "a figure"):
        import altair as alt
    return alt


def colours(family: Mapping[str, str], present: Any = None) -> Any:
    """A colour scale with the family's order; only the names that are present."""
    alt = altair()
    names = [name for name in family if present is None or name in present]
    return alt.Scale(domain=names, range=[family[name] for name in names])


def themed(chart: Any) -> dict[str, Any]:
    """The chart's Vega-Lite specification with the report's look. Invisible characters are shown as in a
    terminal: the converter crashes on a control character."""
    axis = {"labelFont": FONT, "titleFont": FONT, "labelFontSize": 11, "titleFontSize": 12}
    axis |= {"titleFontWeight": "normal", "gridColor": "#E6E6E6", "domainColor": INK, "tickColor": INK}
    axis |= {"labelFlush": False}
    legend = {
        "labelFont": FONT,
        "titleFont": FONT,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "symbolSize": 90,
        "columnPadding": 14,
    }
    spec = _visible(chart.to_dict())
    spec["background"] = "white"
    spec["config"] = spec.get("config", {}) | {
        "axis": axis,
        "legend": legend,
        "header": {"labelFont": FONT, "titleFont": FONT, "labelFontSize": 12},
        "title": {"font": FONT, "fontSize": 12, "fontWeight": "normal", "anchor": "start"},
        "view": {"stroke": None},
        "text": {"font": FONT},
    }
    return spec


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {name: _visible(inner) for name, inner in value.items()}
    return [_visible(inner) for inner in value] if isinstance(value, list) else value


Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Figure:
    """A complete figure. `chart` draws it, an Altair chart; `rows` are its data, as written next to it."""

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
    report's own, others are drawn with it if the figure compares runs."""

    name: str
    title: str
    draw: Callable[[Sequence[Material]], Figure | Missing]


def no_rounds(material: Material) -> Missing:
    return Missing("no round is committed yet", material.next_round)


def setting(materials: Sequence[Material], rows: Rows) -> str:
    """The setting of a figure's rows, for its caption: the first run with some, and the others."""
    shown = {row["run"] for row in rows}
    first, *others = [material for material in materials if material.run_id in shown]
    names = ", ".join(f"run {material.run_id}" for material in others)
    return first.setting + (f" Beside it: {names}." if others else "")


def bottom_legend(**more: Any) -> Any:
    """Every legend is below its figure, in one line."""
    alt = altair()

    return alt.Legend(orient="bottom", title=None, **more)


def span(values: Iterable[float], *, zero: bool = False, most: float | None = None) -> Any:
    """A scale around the values with padding at both ends, within the limits of the unit."""
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

    `field` names the series and `family` their colours; each also has its own dash and mark, in one legend.
    With several runs in one figure the dash and the mark identify the run instead. `most` is the
    greatest value that the unit allows.
    """
    alt = altair()
    names = [name for name in family if any(row[field] == name for row in rows)]
    legend = bottom_legend(symbolSize=130, symbolStrokeWidth=0) if len(names) > 1 else None
    scale = span((row[c] for row in rows for c in (y, *(band or ()))), zero=zero, most=most)
    base = alt.Chart(data(rows)).encode(x=x_round(), y=alt.Y(f"{y}:Q", title=title, scale=scale))
    colour = alt.Color(f"{field}:N", title=None, legend=legend, scale=colours(family, names))
    by, domain, dash_legend = field, names, legend
    if runs > 1 and field != "run":
        by, domain = "run", list(dict.fromkeys(row["run"] for row in rows))
        dash_legend = alt.Legend(
            orient="bottom", title="run", titleOrient="left", symbolSize=130, symbolStrokeWidth=0
        )
    dashes = alt.Scale(domain=domain, range=[DASHES[i % len(DASHES)] for i in range(len(domain))])
    shapes = alt.Scale(domain=domain, range=[SHAPES[i % len(SHAPES)] for i in range(len(domain))])
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
    """A colour for each name without its own, in order."""
    return {name: SERIES[i % len(SERIES)] for i, name in enumerate(dict.fromkeys(names))}


def percent(share: float) -> float:
    return round(100 * share, 3)
