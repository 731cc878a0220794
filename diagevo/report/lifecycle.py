"""What the memory did: states by round, and their changes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from diagevo.report.figure import (
    Figure,
    Missing,
    Rows,
    bottom_legend,
    data,
    lines,
    no_rounds,
    sized,
    x_round,
)
from diagevo.report.material import Material
from diagevo.report.style import CHANGES, STATES, altair, colours


def memory(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.rounds:
        return no_rounds(material)
    rows: Rows = []
    changes: Rows = []
    for facts in material.rounds:
        counts = {"Active": facts.active, "Mastered": facts.mastered, "skill nodes": facts.nodes}
        rows += [{"round": facts.round, "series": name, "count": count} for name, count in counts.items()]
        moved = {
            "created": facts.created,
            "promoted": len(facts.promoted),
            "reactivated": len(facts.reactivated),
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
