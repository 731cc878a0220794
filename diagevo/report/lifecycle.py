"""What the memory did: states by round, the schedule that follows, the causes that recur or return."""

from collections import Counter
from collections.abc import Sequence

from diagevo.report.figure import NO_ROUNDS, Figure, Missing, Rows, data, lines, sized, x_round
from diagevo.report.material import Material
from diagevo.report.style import GREY, SERIES, STATES, WIDTH, altair, colours

CHANGES = {"created": "#9CC9E8", "promoted": "#0B3C5D", "reactivated": "#E07A2F"}
TOP_CAUSES = 20


def memory(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.rounds:
        return NO_ROUNDS
    alt = altair()

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
    states = lines(rows, "count", "after the round", "series", STATES, zero=True)
    bars = (
        alt.Chart(data(changes))
        .mark_bar()
        .encode(
            x=x_round(),
            y=alt.Y("causes:Q", title="causes in the round", axis=alt.Axis(tickMinStep=1)),
            xOffset=alt.XOffset("change:N", sort=list(CHANGES)),
            color=alt.Color(
                "change:N",
                title=None,
                scale=colours(CHANGES),
                sort=list(CHANGES),
                legend=alt.Legend(orient="bottom"),
            ),
        )
    )
    chart = alt.vconcat(sized(states, height=220), sized(bars, height=130)).resolve_scale(
        color="independent", strokeDash="independent", shape="independent"
    )
    caption = (
        "Above: error causes that are Active or Mastered, and skill nodes, in the memory committed after each"
        " round. Below: causes created, promoted to Mastered, and reactivated by new failures in the round."
        f" {material.setting}"
    )
    return Figure(chart, rows + changes, caption)


def schedule(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.rounds:
        return NO_ROUNDS
    alt = altair()

    rows: Rows = []
    for facts in material.rounds:
        rows.append(
            {
                "round": facts.round,
                "quantity": "ε",
                "value": float(facts.epsilon),
                "exact": str(facts.epsilon),
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

    def panel(quantity: str, title: str, colour: str, domain: list[float] | None = None):
        scale = alt.Scale(domain=domain) if domain else alt.Scale(zero=True)
        whole = alt.Scale(domain=sorted({row["round"] for row in rows}))
        base = alt.Chart(data([row for row in rows if row["quantity"] == quantity])).encode(
            x=x_round().scale(whole),
            y=alt.Y("value:Q", title=title, scale=scale),
            tooltip=["round:O", "exact:N"],
        )
        line = base.mark_line(color=colour, strokeWidth=2)
        return sized(
            alt.layer(line, base.mark_point(color=colour, filled=True, size=60, opacity=1)), height=120
        )

    chart = alt.vconcat(
        panel("ε", "ε, share of free prompts", SERIES[0], [0, 1]),
        panel("F", "F, open failures", STATES["Active"]),
        panel("z", "z = F / reference", GREY),
    )
    k = material.config.get("schedule", {}).get("k", "1/2")
    caption = (
        "The schedule (Equation 1): ε of each round and of the next one; F, the failures counted in current"
        f" active episodes after the round's commit; z, F over its reference round. k = {k}."
        f" {material.setting}"
    )
    return Figure(chart, rows, caption)


def top_causes(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.causes:
        return NO_ROUNDS if not material.rounds else Missing("the memory holds no cause yet", "diagevo train")
    alt = altair()

    weight: dict[str, int] = {}
    for cause in material.causes:
        weight[cause.cause_id] = cause.frequency
    for promotion in material.promotions:
        weight[promotion.cause_id] += promotion.closed_frequency
    chosen = sorted(weight, key=lambda c: (-weight[c], int(c[1:])))[:TOP_CAUSES]
    names = {c.cause_id: _short(f"{c.cause_id}  {c.description}") for c in material.causes}
    rows = [
        {
            "round": c.round,
            "cause_id": c.cause_id,
            "cause": names[c.cause_id],
            "node": c.node,
            "state": c.state.capitalize(),
            "f": c.frequency,
            "description": c.description,
        }
        for c in material.causes
        if c.cause_id in chosen
    ]
    base = alt.Chart(data(rows)).encode(
        x=x_round(),
        y=alt.Y("cause:N", title=None, sort=[names[c] for c in chosen], axis=alt.Axis(labelLimit=520)),
        tooltip=["cause_id:N", "description:N", "node:N", "state:N", "f:Q"],
    )
    two = {name: STATES[name] for name in ("Active", "Mastered")}
    cells = base.mark_rect(stroke="white", strokeWidth=2).encode(
        color=alt.Color("state:N", title=None, scale=colours(two), legend=alt.Legend(orient="bottom")),
        opacity=alt.condition("datum.state == 'Mastered'", alt.value(1), alt.value(0.85)),
    )
    counts = base.mark_text(fontSize=11).encode(
        text=alt.condition("datum.f > 0", "f:Q", alt.value("")), color=alt.value("black")
    )
    rounds = len(material.rounds)
    chart = alt.layer(cells, counts).properties(width=max(120, 46 * rounds), height=20 * len(chosen))
    caption = (
        f"The {len(chosen)} causes with the most counted failures, over all rounds, and their"
        " episodes: Active with"
        " the failures f of the current episode, or Mastered; blank before a cause is created. A cause that"
        f" turns from Mastered to Active was reactivated. {material.setting}"
    )
    return Figure(chart, rows, caption)


def reactivations(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.rounds:
        return NO_ROUNDS
    if not material.reactivations:
        return Missing("no Mastered cause has failed again in the committed rounds", "diagevo train --resume")
    alt = altair()

    rows = [
        {
            "cause_id": r.cause_id,
            "cause": _short(f"{r.cause_id}  {r.description}"),
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
        for r in material.reactivations
    ]
    shown = rows[-40:]
    first, last = material.rounds[0].round, material.rounds[-1].round
    y = alt.Y("cause:N", title=None, sort=[r["cause"] for r in shown], axis=alt.Axis(labelLimit=520))
    axis = alt.Axis(tickMinStep=1, values=list(range(first, last + 1)), format="d")
    x = alt.X("promoted:Q", title="round", axis=axis, scale=alt.Scale(domain=[first - 0.3, last + 0.3]))
    base = alt.Chart(data(shown)).encode(
        y=y,
        tooltip=[
            "cause_id:N",
            "description:N",
            "consistency_exact:N",
            "failure_id:N",
            "via:N",
            "similarity:Q",
        ],
    )
    spans = base.mark_rule(color=GREY, strokeWidth=2).encode(x=x, x2="reactivated:Q")
    up = base.mark_point(
        shape="triangle-up", filled=True, size=90, color=STATES["Mastered"], opacity=1
    ).encode(x=x)
    down = base.mark_point(shape="diamond", filled=True, size=70, color=STATES["Active"], opacity=1).encode(
        x=alt.X("reactivated:Q", axis=axis)
    )
    chart = alt.layer(spans, up, down).properties(
        width=WIDTH, height=max(80, 20 * len({r["cause"] for r in shown}))
    )
    same = sum(r["promoted"] == r["reactivated"] for r in rows)
    caption = (
        f"The {len(shown)} latest of {len(rows)} reactivations: from the promotion (▲, mean p₁ at or"
        " above the"
        " threshold over that round's targeted questions) to the failure that reactivated the cause (◆). In"
        f" {same} the promotion and the failure fell into one round. The evidence is in the table."
        f" {material.setting}"
    )
    return Figure(chart, rows, caption)


def _short(text: str, most: int = 80) -> str:
    text = " ".join(text.split())  # Vega puts labels into code, where a line separator is an error
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
