"""Accuracy by round of each variant, over its seeds: one figure for as many as a plan has."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from diagevo.arithmetic import WRITES
from diagevo.evaluation.ablation import FULL
from diagevo.evaluation.protocol import estimate
from diagevo.report.figure import Figure, Missing, Rows, by_order, data, lines, percent, sized, span, x_round
from diagevo.report.learning import averages
from diagevo.report.material import Material
from diagevo.report.scores import GROUPS
from diagevo.report.style import GREY, SERIES, altair

TOGETHER = len(SERIES)
"""More variants than there are lines to tell apart have a panel each, with the full method behind it."""
MEASURES = {
    "math": "mathematical average",
    "mean_at_k": "mean over samples of the validation set",
    "greedy": "greedy answers to the validation set",
}


def measured_by_round(material: Material, measure: str) -> dict[int, float]:
    """Accuracies in [0, 1] by round, of one of `MEASURES`."""
    if measure == "math":
        return {number: value for number, (value, _) in averages(material, GROUPS["Math Avg."]).items()}
    found = (v for v in material.validations if v.benchmark == "validation" and measure in v.metrics)
    return {validation.round: validation.metrics[measure] for validation in found}


def shared_measure(materials: Sequence[Material]) -> str | None:
    """The first of `MEASURES` that the most runs have: curves of one figure are of one measure."""
    counts = {m: sum(bool(measured_by_round(each, m)) for each in materials) for m in MEASURES}
    most = max(counts.values(), default=0)
    return next((measure for measure in MEASURES if counts[measure] == most), None) if most else None


def by_variant(materials: Sequence[Material]) -> Figure | Missing:
    measure = shared_measure(materials)
    if measure is None:
        hint = f"diagevo eval run all --run {materials[0].run_id} --round all"
        return Missing("no round has been validated or measured", hint)
    groups: dict[str, dict[int, list[float]]] = {}
    runs: dict[str, list[str]] = {}
    for material in materials:
        for number, value in measured_by_round(material, measure).items():
            groups.setdefault(material.arm, {}).setdefault(number, []).append(value)
            if material.run_id not in runs.setdefault(material.arm, []):
                runs[material.arm].append(material.run_id)
    rows: Rows = [
        _row(arm, number, values)
        for arm, rounds in groups.items()
        for number, values in sorted(rounds.items())
    ]
    alone = "Without a bar: one run."
    together = len(groups) <= TOGETHER
    caption = (
        f"Accuracy after each round: the {MEASURES[measure]}, a mean over runs with one standard deviation of"
        f" them. {alone if any(row['runs'] == 1 for row in rows) else ''} Round 0 is the model that all start"
        f" from. {'' if together else f'Behind each: {FULL.title}. '}"
        f"{' '.join(_named(arm, names) for arm, names in runs.items())} {_where(materials)}"
    )
    return Figure(partial(_together if together else _panels, rows, groups), rows, " ".join(caption.split()))


def _row(arm: str, number: int, values: Sequence[float]) -> dict[str, Any]:
    found = estimate(values)
    spread = found.standard_error * len(values) ** 0.5
    return {
        "series": arm,
        "round": number,
        "accuracy": percent(found.value),
        "low": percent(found.value - spread),
        "high": percent(found.value + spread),
        "runs": len(values),
    }


def _named(arm: str, names: Sequence[str]) -> str:
    """Which runs an arm is, for the caption."""
    if [arm] == names:
        return f"Run {arm}."
    return f"{arm}: {'run' if len(names) == 1 else 'runs'} {', '.join(names)}."


def _where(materials: Sequence[Material]) -> str:
    worlds = sorted({material.world for material in materials if material.world})
    return f"Measured in the {' and '.join(worlds)} world, a small laboratory: {WRITES}." if worlds else ""


def _together(rows: Rows, groups: Mapping[str, Any]) -> Any:
    band = ("low", "high")
    return sized(lines(rows, "accuracy", "accuracy (%)", "series", by_order(groups), most=100, band=band))


def _panels(rows: Rows, groups: Mapping[str, Any]) -> Any:
    """A panel a variant, three beside each other on one scale; the full method, if it was played, in grey."""
    alt = altair()
    arms = list(groups)
    scale = span((row[c] for row in rows for c in ("low", "high")), most=100)
    behind = [row for row in rows if row["series"] == FULL.title]

    def panel(arm: str) -> Any:
        title = "accuracy (%)" if arms.index(arm) % 3 == 0 else None
        own = [row for row in rows if row["series"] == arm]
        y = alt.Y("accuracy:Q", title=title, scale=scale)
        base = alt.Chart(data(own)).encode(x=x_round(), y=y)
        layers = [
            alt.Chart(data(behind)).mark_line(color=GREY, strokeDash=[4, 3]).encode(x=x_round(), y=y),
            base.mark_line(color=SERIES[1], strokeWidth=2),
            base.mark_point(color=SERIES[1], filled=True, size=40, opacity=1),
            base.mark_rule(color=SERIES[1]).encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high"),
        ]
        return alt.layer(*layers).properties(width=170, height=110, title=arm)

    grid = [alt.hconcat(*map(panel, arms[start : start + 3])) for start in range(0, len(arms), 3)]
    return alt.vconcat(*grid)
