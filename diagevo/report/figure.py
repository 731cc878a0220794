"""What a figure is: a chart, the rows it was drawn from, and a caption that says how they were measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from diagevo.report.material import Material
from diagevo.report.style import HEIGHT, WIDTH, altair

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Figure:
    """A drawn figure. `chart` is an Altair chart; `rows` are its data, as written beside it."""

    chart: Any
    rows: Rows
    caption: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a figure cannot be drawn yet, and the command that supplies what is missing."""

    reason: str
    command: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A figure of the report by name. `draw` takes the materials of one run or several: the first is the
    report's own, others are drawn beside it where the figure compares runs."""

    name: str
    title: str
    draw: Callable[[Sequence[Material]], Figure | Missing]


NO_ROUNDS = Missing("no round is committed yet", "diagevo train")


def data(rows: Rows) -> Any:
    alt = altair()

    return alt.Data(values=rows)


def x_round(title: str = "round") -> Any:
    """Rounds on the x axis, whole numbers without a label between them."""
    alt = altair()

    return alt.X("round:O", title=title, axis=alt.Axis(labelAngle=0))


def sized(chart: Any, width: int = WIDTH, height: int = HEIGHT) -> Any:
    return chart.properties(width=width, height=height)


def lines(
    rows: Rows,
    y: str,
    title: str,
    colour: Any,
    *,
    dash: Any = None,
    zero: bool = False,
    band: tuple[str, str] | None = None,
) -> Any:
    """Lines with marks by round, and error bars where `band` names their columns."""
    alt = altair()

    base = alt.Chart(data(rows))
    scale = alt.Scale(zero=zero)
    encoding = {"x": x_round(), "y": alt.Y(f"{y}:Q", title=title, scale=scale), "color": colour}
    if dash is not None:
        encoding["strokeDash"] = dash
    shape = {} if dash is None else {"shape": alt.Shape(dash.shorthand, legend=None)}
    drawn = base.mark_line(strokeWidth=2).encode(**encoding)
    marks = base.mark_point(filled=True, size=60, opacity=1).encode(
        **{name: value for name, value in encoding.items() if name != "strokeDash"}, **shape
    )
    layers = [drawn, marks]
    if band is not None:
        layers.append(
            base.mark_rule(strokeWidth=1).encode(
                x=x_round(),
                y=alt.Y(f"{band[0]}:Q", title=title, scale=scale),
                y2=f"{band[1]}:Q",
                color=colour,
            )
        )
    return alt.layer(*layers)


def percent(share: float) -> float:
    return round(100 * share, 3)
