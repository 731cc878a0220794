"""What the memory did: states by round, and the schedule that follows from them."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from diagevo.memory.audit.retention import by_round
from diagevo.report.figure import (
    Figure,
    Missing,
    Rows,
    bottom_legend,
    data,
    lines,
    no_rounds,
    sized,
    span,
    x_round,
)
from diagevo.report.material import Material
from diagevo.report.style import CHANGES, SERIES, STATES, altair, colours


def memory(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.rounds:
        return no_rounds(material)
    rows: Rows = []
    changes: Rows = []
    promoted = Counter(p.round for p in material.promotions)
    reactivated = Counter(r.round for r in material.reactivations)
    for facts in material.rounds:
        counts = {"Active": facts.active, "Mastered": facts.mastered, "skill nodes": facts.nodes}
        rows += [{"round": facts.round, "series": name, "count": count} for name, count in counts.items()]
        moved = {
            "created": material.created.get(facts.round, 0),
            "promoted": promoted[facts.round],
            "reactivated": reactivated[facts.round],
        }
        changes += [{"round": facts.round, "change": name, "causes": count} for name, count in moved.items()]
    caption = (
        "Above: error causes that are Active or Mastered, and skill nodes, in the memory committed after each"
        " round. Below: causes created, promoted to Mastered, and reactivated by new failures in the round."
        f" {material.setting}"
    )
    return Figure(partial(_memory_chart, rows, changes), rows + changes, caption)


def _memory_chart(rows: Rows, changes: Rows) -> Any:
    alt = altair()
    states = lines(rows, "count", "number after the round", "series", STATES, zero=True)
    bars = (
        alt.Chart(data(changes))
        .mark_bar()
        .encode(
            x=x_round(),
            y=alt.Y("causes:Q", title="causes in the round", axis=alt.Axis(tickMinStep=1)),
            xOffset=alt.XOffset("change:N", sort=list(CHANGES)),
            color=alt.Color("change:N", scale=colours(CHANGES), sort=list(CHANGES), legend=bottom_legend()),
        )
    )
    return alt.vconcat(sized(states, height=220), sized(bars, height=130)).resolve_scale(
        color="independent", strokeDash="independent", shape="independent"
    )


def schedule(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.rounds:
        return no_rounds(material)
    rows: Rows = []
    for facts in material.rounds:
        rows.append(
            {
                "round": facts.round,
                "quantity": "ε",
                "value": float(material.epsilons[facts.round]),
                "exact": str(material.epsilons[facts.round]),
            }
        )
        rows.append(
            {"round": facts.round, "quantity": "F", "value": facts.failures, "exact": str(facts.failures)}
        )
        if facts.z is not None:
            rows.append(
                {"round": facts.round, "quantity": "z", "value": float(facts.z), "exact": str(facts.z)}
            )
    last = material.rounds[-1]
    following = {"round": last.round + 1, "quantity": "ε", "value": float(last.epsilon_next)}
    rows.append(following | {"exact": str(last.epsilon_next)})
    numbers = [facts.round for facts in material.rounds]
    k = by_round(numbers, [f"k = {material.configured[number].settings.k}" for number in numbers])
    caption = (
        "The schedule (Equation 1): ε of each round and of the next one; F, the failures counted in current"
        f" active episodes after the round's commit; z, F over its reference round; {k}."
        f" {material.setting}"
    )
    return Figure(partial(_schedule_chart, rows), rows, caption)


def _schedule_chart(rows: Rows) -> Any:
    alt = altair()
    rounds = alt.Scale(domain=sorted({row["round"] for row in rows}))

    def panel(quantity: str, title: str, colour: str, *, lowest: bool = False) -> Any:
        shown = [row for row in rows if row["quantity"] == quantity]
        most = 1.0 if quantity == "ε" else None
        x = x_round().scale(rounds)
        base = alt.Chart(data(shown)).encode(
            x=x if lowest else x.axis(alt.Axis(labels=False, title=None)),
            y=alt.Y(
                "value:Q", title=title, scale=span((row["value"] for row in shown), zero=True, most=most)
            ),
            tooltip=["round:O", "exact:N"],
        )
        line = base.mark_line(color=colour, strokeWidth=2)
        points = base.mark_point(color=colour, filled=True, size=60, opacity=1, clip=False)
        return sized(alt.layer(line, points), height=110)

    return alt.vconcat(
        panel("ε", "ε (share free)", SERIES[0]),
        panel("F", "F (failures)", STATES["Active"]),
        panel("z", "z = F / reference", SERIES[4], lowest=True),
        spacing=14,
    )
