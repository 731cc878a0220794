"""The paper's Figure 1a: how long the questions grow, and what the solver gains by it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from diagevo.evaluation.protocol import estimate
from diagevo.report.figure import (
    Figure,
    Missing,
    Rows,
    bottom_legend,
    by_order,
    data,
    lines,
    no_rounds,
    percent,
    setting,
    sized,
    x_round,
)
from diagevo.report.learning import averages
from diagevo.report.material import Material
from diagevo.report.scores import GROUPS
from diagevo.report.style import altair

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


def length_and_accuracy(materials: Sequence[Material]) -> Figure | Missing:
    bars: Rows = [
        {
            "run": material.run_id,
            "round": facts.round,
            "words": estimate(words).value,
            "questions": len(words),
        }
        for material in materials
        for facts in material.rounds
        if (words := [len(question.text.split()) for question in material.questions(facts.round)])
    ]
    if not bars:
        return no_rounds(materials[0])
    measure = shared_measure(materials)
    if measure is None:
        hint = f"diagevo eval run all --run {materials[0].run_id} --round all"
        return Missing("no round has been validated or measured", hint)
    points: Rows = [
        {"run": material.run_id, "round": number, "accuracy": percent(value)}
        for material in materials
        for number, value in sorted(measured_by_round(material, measure).items())
        if number
    ]
    caption = (
        "Co-evolution by round. Bars: mean length of the readable questions in words. Lines: the"
        f" {MEASURES[measure]}. {setting(materials, bars)} The paper's (b) and (c) are drawn illustrations."
    )
    runs = [material.run_id for material in materials]
    return Figure(partial(_chart, bars, points, runs), bars + points, caption)


def _chart(bars: Rows, points: Rows, runs: Sequence[str]) -> Any:
    alt = altair()
    family = by_order(runs)
    colour = alt.Color(
        "run:N", title=None, legend=bottom_legend(), scale=alt.Scale(domain=runs, range=list(family.values()))
    )
    length = (
        alt.Chart(data(bars))
        .mark_bar(opacity=0.35)
        .encode(
            x=x_round(),
            xOffset=alt.XOffset("run:N", sort=runs),
            y=alt.Y("words:Q", title="words a question (bars)"),
            color=colour,
        )
    )
    accuracy = lines(points, "accuracy", "accuracy (%, lines)", "run", family, most=100)
    return sized(alt.layer(length, accuracy).resolve_scale(y="independent"))
