"""Properties of the questions: length, variety of words, and how free and targeted ones cover the space."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from diagevo.evaluation.protocol import estimate
from diagevo.memory.events.catalogue import HASHING
from diagevo.report.figure import (
    INK,
    MODES,
    Figure,
    Missing,
    Rows,
    altair,
    bottom_legend,
    by_order,
    colours,
    data,
    lines,
    no_rounds,
    setting,
    sized,
)
from diagevo.report.report_data import Candidate, Material

if TYPE_CHECKING:
    import numpy as np

    from diagevo.diagnosis.embedder import Embedder

POINTS = 600
"""Maximum questions per round in the coverage figure; more would overlap."""
SHOWN_ROUNDS = 3


def question_length(materials: Sequence[Material]) -> Figure | Missing:
    rows: Rows = []
    for material in materials:
        for facts in material.rounds:
            groups: dict[str, list[float]] = defaultdict(list)
            for question in material.questions(facts.round):
                groups[question.mode].append(len(question.text.split()))
                groups["all"].append(len(question.text.split()))
            for mode, words in groups.items():
                mean = estimate(words)
                rows.append(
                    {
                        "run": material.run_id,
                        "round": facts.round,
                        "mode": mode,
                        "words": mean.value,
                        "low": mean.value - mean.standard_error,
                        "high": mean.value + mean.standard_error,
                        "questions": mean.questions,
                    }
                )
    if not rows:
        return no_rounds(materials[0])
    if len(materials) > 1:
        shown = [row for row in rows if row["mode"] == "all"]
        family = by_order(material.run_id for material in materials)
        chart = partial(_lengths, shown, "run", family)
    else:
        chart = partial(_lengths, rows, "mode", {**MODES, "all": INK}, band=("low", "high"))
    caption = (
        "Mean length of the round's readable questions in words (split at white space), by generation mode."
        f" {setting(materials, rows)} Bars: one standard error."
    )
    return Figure(chart, rows, caption)


def _lengths(rows: Rows, field: str, family: Mapping[str, str], band: tuple[str, str] | None = None) -> Any:
    return sized(lines(rows, "words", "words a question", field, family, zero=True, band=band))


def distinct_pairs(questions: Sequence[str]) -> float:
    """Distinct adjacent word pairs over all adjacent word pairs, in percent; 0 if there are none."""
    pairs = [pair for question in questions for pair in pairwise(question.split())]
    return 100 * len(set(pairs)) / len(pairs) if pairs else 0.0


def principal_axes(vectors: "np.ndarray") -> "tuple[np.ndarray, np.ndarray]":
    """Vectors (n, d) in the plane of their two principal components, (n, 2) float64 and centred, and the
    share of the variance on each, in percent.

    A component's sign is arbitrary; here its entry of largest magnitude is positive, so that a figure does
    not flip from one run or library to the next. A component that does not exist (n = 1, d = 1) is zero.
    """
    import numpy as np

    points = np.asarray(vectors, dtype=np.float64)
    plane, shares = np.zeros((len(points), 2)), np.zeros(2)
    centred = points - points.mean(axis=0)
    # Of the d × d products, in half the time of a decomposition of all vectors.
    variances, axes = np.linalg.eigh(centred.T @ centred)
    variances, components = variances[::-1].clip(0), axes[:, ::-1].T[:2]
    largest = np.abs(components).argmax(axis=1)
    components *= np.where(components[np.arange(len(components)), largest] < 0, -1.0, 1.0)[:, None]
    plane[:, : len(components)] = centred @ components.T
    shares[: len(components)] = 100 * variances[:2] / max(float(variances.sum()), 1e-12)
    return plane, shares


def pair_diversity(materials: Sequence[Material]) -> Figure | Missing:
    by_round = {
        (material.run_id, facts.round): [q.text for q in material.questions(facts.round)]
        for material in materials
        for facts in material.rounds
    }
    by_round = {key: texts for key, texts in by_round.items() if texts}
    if not by_round:
        return no_rounds(materials[0])
    size = min(len(texts) for texts in by_round.values())
    rows: Rows = []
    for (run, number), texts in by_round.items():
        rng = random.Random(f"{run}.{number}")
        draws = [distinct_pairs(rng.sample(texts, size)) for _ in range(20)]
        rows.append({"run": run, "round": number, "diversity": sum(draws) / len(draws), "questions": size})
    caption = (
        f"Distinct adjacent word pairs over all adjacent word pairs in {size} of each round's"
        " readable questions:"
        " the same number every round, because the share falls as texts grow; mean of 20 seeded draws."
        f" {setting(materials, rows)}"
    )
    return Figure(partial(_diversity, rows), rows, caption)


def _diversity(rows: Rows) -> Any:
    family = by_order(row["run"] for row in rows)
    return sized(lines(rows, "diversity", "2-gram diversity (%)", "run", family, most=100))


def question_coverage(materials: Sequence[Material], embedder: "Embedder | None" = None) -> Figure | Missing:
    material = materials[0]
    if not material.candidates:
        return no_rounds(material)
    chosen: list[Candidate] = []
    for facts in material.rounds[-SHOWN_ROUNDS:]:
        questions = material.questions(facts.round)
        chosen += random.Random(facts.round).sample(questions, min(POINTS, len(questions)))
    if len(chosen) < 3:
        return Missing("fewer than three readable questions", material.next_round)
    known = None if material.configuration is None else material.configuration.embedder
    if embedder is None:
        if known is None or known.name != HASHING:
            return Missing(
                f"the questions have no {known.name if known else 'embedding'} vectors yet",
                f"diagevo report build --run {material.run_id} --embed",
            )
        from diagevo.diagnosis.embedder import HashingEmbedder

        embedder = HashingEmbedder(known.dimension)
    points, explained = principal_axes(embedder.embed([c.text for c in chosen]))
    rows = [
        {
            "round": c.round,
            "question_id": c.question_id,
            "mode": c.mode,
            "x": round(float(x), 5),
            "y": round(float(y), 5),
        }
        for c, (x, y) in zip(chosen, points, strict=True)
    ]
    caption = (
        f"Questions of the last {min(SHOWN_ROUNDS, len(material.rounds))} rounds (at most {POINTS}"
        " each, drawn by"
        f" seed) in the first two principal components of their {embedder.name} vectors, fitted on"
        " all of them"
        f" together, by generation mode. {material.setting}"
    )
    return Figure(partial(_plane, rows, explained), rows, caption)


def _plane(rows: Rows, explained: "np.ndarray") -> Any:
    alt = altair()
    order = [mode for mode in MODES if any(row["mode"] == mode for row in rows)]
    axis = alt.Axis(labels=False, ticks=False)
    return (
        alt.Chart(data(rows))
        .mark_point(filled=True, size=22, opacity=0.75)
        .encode(
            x=alt.X("x:Q", title=f"component 1 ({explained[0]:.0f}%)", axis=axis),
            y=alt.Y("y:Q", title=f"component 2 ({explained[1]:.0f}%)", axis=axis),
            color=alt.Color("mode:N", scale=colours(MODES, order), sort=order, legend=bottom_legend()),
            shape=alt.Shape("mode:N", sort=order, scale=alt.Scale(domain=order), legend=bottom_legend()),
            tooltip=["question_id:N", "mode:N"],
        )
        .properties(width=230, height=230)
        .facet(
            column=alt.Column("round:O", title=None, header=alt.Header(labelExpr="'round ' + datum.value"))
        )
    )
