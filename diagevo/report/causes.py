"""Causes that recur or return: their episodes by round, and the evidence of each reactivation."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from diagevo.memory.events import number_of
from diagevo.report.figure import Figure, Missing, Rows, bottom_legend, data, no_rounds, x_round
from diagevo.report.material import Material, Reactivation
from diagevo.report.style import GREY, STATES, WIDTH, altair, colours

TOP_CAUSES = 20
SHOWN_REACTIVATIONS = 30
LABEL_WIDTH = 560


def top_causes(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.rounds:
        return no_rounds(material)
    if not material.causes:
        return Missing("the memory holds no cause yet", material.next_round)
    weight: dict[str, int] = {}
    for cause in material.causes:
        weight[cause.cause_id] = cause.frequency
    for promotion in material.promotions:
        weight[promotion.cause_id] += promotion.closed_frequency
    chosen = sorted(weight, key=lambda c: (-weight[c], number_of(c)))[:TOP_CAUSES]
    names = {c.cause_id: short(f"{c.cause_id}  {c.description}") for c in material.causes}
    promoted = {(p.round, p.cause_id) for p in material.promotions}
    rows = [
        {
            "round": c.round,
            "cause_id": c.cause_id,
            "cause": names[c.cause_id],
            "node": c.node,
            "state": c.state.capitalize(),
            "f": c.frequency,
            "promoted": (c.round, c.cause_id) in promoted,
            "description": c.description,
        }
        for c in material.causes
        if c.cause_id in chosen
    ]
    caption = (
        f"The {len(chosen)} causes with the most counted failures over all rounds, and their episodes. Active"
        " cells hold the failures f of the current episode. ▲: promoted in the round, which closes an"
        " episode; an Active cell with it was reactivated in the same round, and f counts the new failures"
        f" alone. Blank: not created yet. {material.setting}"
    )
    return Figure(partial(_episodes, rows, [names[c] for c in chosen]), rows, caption)


def _episodes(rows: Rows, names: Sequence[str]) -> Any:
    alt = altair()
    base = alt.Chart(data(rows)).encode(
        x=x_round(),
        y=alt.Y("cause:N", title=None, sort=names, axis=alt.Axis(labelLimit=LABEL_WIDTH)),
        tooltip=["cause_id:N", "description:N", "node:N", "state:N", "f:Q", "promoted:N"],
    )
    two = {name: STATES[name] for name in ("Active", "Mastered")}
    cells = base.mark_rect(stroke="white", strokeWidth=2).encode(
        color=alt.Color("state:N", scale=colours(two), legend=bottom_legend())
    )
    told = base.transform_calculate(
        told="(datum.f > 0 ? datum.f : '') + (datum.promoted ? (datum.f > 0 ? ' ' : '') + '▲' : '')"
    )
    counts = told.mark_text(fontSize=11).encode(
        text="told:N",
        color=alt.condition("datum.state == 'Mastered'", alt.value("white"), alt.value("black")),
    )
    rounds = len({row["round"] for row in rows})
    return alt.layer(cells, counts).properties(width=max(120, 50 * rounds), height=20 * len(names))


def reactivations(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.rounds:
        return no_rounds(material)
    if not material.reactivations:
        return Missing("no Mastered cause has failed again in the committed rounds", material.next_round)

    def latest_and_longest(one: Reactivation) -> tuple[int, int]:
        return -one.round, one.promoted_round - one.round

    rows = [
        {
            "cause_id": r.cause_id,
            "cause": short(f"{r.cause_id}  {r.description}"),
            "description": r.description,
            "promoted": r.promoted_round,
            "reactivated": r.round,
            "consistency": float(r.consistency),
            "consistency_exact": str(r.consistency),
            "promotion_questions": r.promotion_questions,
            "failure_id": r.failure_id,
            "via": r.via,
            "similarity": r.similarity,
            "f_after": r.frequency,
        }
        for r in sorted(material.reactivations, key=latest_and_longest)
    ]
    shown = rows[:SHOWN_REACTIVATIONS]
    same = sum(row["promoted"] == row["reactivated"] for row in rows)
    caption = (
        f"{len(shown)} of {len(rows)} reactivations, the latest rounds and the longest mastery first: from"
        " the promotion (▲, mean p₁ over that round's targeted questions at or above the threshold) to the"
        f" failure that reactivated the cause (◆). In {same} of all {len(rows)} both fell into one round."
        f" The table has their evidence; the data file has all. {material.setting}"
    )
    first, last = material.rounds[0].round, material.rounds[-1].round
    return Figure(partial(_spans, shown, first, last), rows, caption)


def _spans(shown: Rows, first: int, last: int) -> Any:
    alt = altair()
    names = list(dict.fromkeys(row["cause"] for row in shown))
    axis = alt.Axis(values=list(range(first, last + 1)), format="d")
    scale = alt.Scale(domain=[first - 0.4, last + 0.4], nice=False)
    base = (
        alt.Chart(data(shown))
        .transform_calculate(left="datum.promoted - 0.1", right="datum.reactivated + 0.1")
        .encode(
            y=alt.Y("cause:N", title=None, sort=names, axis=alt.Axis(labelLimit=LABEL_WIDTH)),
            tooltip=[
                "cause_id:N",
                "description:N",
                "consistency_exact:N",
                "failure_id:N",
                "via:N",
                "similarity:Q",
            ],
        )
    )
    x = alt.X("left:Q", title="round", axis=axis, scale=scale)
    spans = base.mark_rule(color=GREY, strokeWidth=2).encode(x=x, x2="right:Q")
    up = base.mark_point(shape="triangle-up", filled=True, size=90, color=STATES["Mastered"], opacity=1)
    down = base.mark_point(shape="diamond", filled=True, size=80, color=STATES["Active"], opacity=1)
    chart = alt.layer(spans, up.encode(x=x), down.encode(x=alt.X("right:Q", axis=axis, scale=scale)))
    return chart.properties(width=WIDTH - 120, height=20 * len(names))


def short(text: str, most: int = 96) -> str:
    text = " ".join(text.split())  # Vega puts labels into code, where a line separator is an error
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
