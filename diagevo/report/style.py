"""One look for every figure: a colour means the same thing everywhere, and stays apart in grey.

Colours within a family differ in lightness, and lines also in dash and mark, so that a black-and-white print
can be read.
"""

from collections.abc import Mapping
from typing import Any

from diagevo.errors import extra
from diagevo.text.escaping import visible

STATES: Mapping[str, str] = {"Active": "#E07A2F", "Mastered": "#0B3C5D", "skill nodes": "#B5B5B5"}
MODES: Mapping[str, str] = {"free": "#9CC9E8", "targeted": "#D4691E", "stitched": "#4A1D66"}
CHANGES: Mapping[str, str] = {
    "created": "#F6D2B3",
    "promoted": STATES["Mastered"],
    "reactivated": STATES["Active"],
}
"""What happens to causes, in the colour of the state that they enter; created ones are lighter."""
SERIES: tuple[str, ...] = ("#1B1B1B", "#2A9D8F", "#B5477E", "#8C6D1F", "#7F7F7F")
"""Lines that are neither a state nor a mode, in the order they are named; none has a state's colour."""
GREY = "#8A8A8A"
INK = "#222222"
FONT = "Helvetica, Arial, sans-serif"
WIDTH, HEIGHT = 420, 260


def lightness(colour: str) -> float:
    """Relative luminance of a #RRGGBB colour in [0, 1]: what is left of it in grey (WCAG 2)."""
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
    """The chart's Vega-Lite specification with the report's look. What no picture can show is shown as in
    a terminal: the converter ends the process at a control character."""
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
