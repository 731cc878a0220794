"""What the filter did with the candidates, and where the time went."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from diagevo.equations.filter import verdict
from diagevo.equations.settings import Filter
from diagevo.memory.audit.retention import by_round
from diagevo.report.figure import (
    DASHES,
    Figure,
    Missing,
    Rows,
    bottom_legend,
    data,
    no_rounds,
    sized,
    x_round,
)
from diagevo.report.material import Material
from diagevo.report.style import SERIES, VERDICTS, altair, by_lightness, colours

TAUS = tuple(Fraction(n, 10) for n in range(10, 31))
COMPONENTS: dict[str, tuple[str, float | None]] = {
    "challenger": ("challenger optimization", 27.1),
    "candidates": ("candidate generation", 10.9),
    "votes": ("labels and filtering", 30.3),
    "solver": ("solver optimization", 25.9),
    "diagnosis": ("diagnosis and memory, in all", 5.7),
    "extraction": ("– error-cause extraction", 3.9),
    "deduplication": ("– deduplication and node assignment", 1.3),
    "consolidation": ("– skill-node consolidation", 0.4),
    "update": ("– state and frequency update, scheduling", 0.1),
    "orchestration": ("other orchestration", 0.1),
    "abandoned": ("abandoned attempts", None),
}
"""The rows of the paper's table of training time with its shares, and what it does not have."""


def filtering(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.candidates:
        return no_rounds(material)
    alt = altair()

    rows: Rows = []
    for facts in material.rounds:
        of_round = Counter(c.verdict.replace("_", " ") for c in material.candidates if c.round == facts.round)
        total = of_round.total()
        rows += [
            {
                "round": facts.round,
                "verdict": name,
                "candidates": of_round[name],
                "share": 100 * of_round[name] / total,
            }
            for name in VERDICTS
            if of_round[name]
        ]
    present = {row["verdict"] for row in rows}
    order = list(VERDICTS)
    bars = (
        alt.Chart(data([row | {"rank": order.index(row["verdict"])} for row in rows]))
        .mark_bar(stroke="white", strokeWidth=0.5)
        .encode(
            x=x_round(),
            y=alt.Y("share:Q", title="share of candidates (%)", scale=alt.Scale(domain=[0, 100])),
            color=alt.Color(
                "verdict:N", scale=colours(VERDICTS, present), sort=order, legend=bottom_legend()
            ),
            order=alt.Order("rank:Q"),
            tooltip=["round:O", "verdict:N", "candidates:Q", alt.Tooltip("share:Q", format=".1f")],
        )
    )
    used = _by_round(material, lambda f: f"p₁ from {f.p_low} to {f.p_high}, p₁ ≥ τ p₂ with τ = {f.tau}")
    caption = (
        f"What double-confidence filtering (Equation 3) did with each round's candidates: {used}."
        f" Contested: within the range, but the second answer is too close. {material.setting}"
    )
    return Figure(sized(bars), rows, caption)


def retention(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.candidates:
        return no_rounds(material)
    alt = altair()

    rows: Rows = []
    for facts in material.rounds:
        band = replace(material.configured[facts.round].filter, variant="double")
        of_round = [c for c in material.candidates if c.round == facts.round]
        shares = Counter(
            (Fraction(c.first, c.responses), Fraction(c.second, c.responses), c.first > 0)
            for c in of_round
            if c.verdict != "invalid"
        )
        for tau in TAUS:
            chosen = replace(band, tau=tau)
            kept = sum(count for share, count in shares.items() if verdict(*share, chosen) == "kept")
            rows.append(
                {"round": facts.round, "tau": float(tau), "kept": kept, "share": 100 * kept / len(of_round)}
            )
    legend = alt.Legend(
        orient="bottom", title="round", titleOrient="left", symbolStrokeWidth=2, symbolSize=300
    )
    dashes = [DASHES[i % len(DASHES)] for i in range(len(material.rounds))]
    shades = by_lightness([facts.round for facts in material.rounds])
    base = alt.Chart(data(rows)).encode(
        x=alt.X("tau:Q", title="τ", scale=alt.Scale(domain=[1, 3])),
        y=alt.Y("share:Q", title="retained candidates (%)", scale=alt.Scale(zero=True)),
        color=alt.Color("round:O", scale=shades, legend=legend),
        strokeDash=alt.StrokeDash(
            "round:O", scale=alt.Scale(domain=list(shades.domain), range=dashes), legend=legend
        ),
    )
    rule = (
        alt.Chart(
            data([{"tau": t} for t in sorted({float(c.filter.tau) for c in material.configured.values()})])
        )
        .mark_rule(strokeDash=[2, 3], color="#8A8A8A")
        .encode(x="tau:Q")
    )
    bands = _by_round(material, lambda f: f"p₁ between {f.p_low} and {f.p_high}")
    caption = (
        "Share of each round's candidates that a filter with another τ would have retained,"
        " recomputed exactly"
        f" from the recorded votes; {bands}. The dotted line is the run's own τ:"
        f" {_by_round(material, lambda f: str(f.tau))}."
        f" The questions themselves are those the run drew: no other training is implied. {material.setting}"
    )
    return Figure(sized(alt.layer(base.mark_line(strokeWidth=2), rule)), rows, caption)


def _by_round(material: Material, words: Callable[[Filter], str]) -> str:
    """What the words say of the filter, with its rounds where a fork has changed it."""
    numbers = [facts.round for facts in material.rounds]
    return by_round(numbers, [words(material.configured[number].filter) for number in numbers])


def time_by_stage(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.seconds:
        return Missing("no stage has recorded its time", f"diagevo train --run {material.run_id} --resume")
    alt = altair()

    spent: defaultdict[str, float] = defaultdict(float)
    for _, part, seconds in material.seconds:
        spent["deduplication" if part == "assignment" else part] += seconds
    beside = spent.pop("beside training", 0.0)
    total = sum(spent.values())
    spent["diagnosis"] = sum(
        spent[part] for part in ("extraction", "deduplication", "consolidation", "update")
    )
    rows: Rows = []
    for part, (name, paper) in COMPONENTS.items():
        own = {"share": 100 * spent[part] / total, "seconds": spent[part]}
        rows.append({"stage": name, "source": "this run", **own})
        if paper is not None:
            rows.append({"stage": name, "source": "the paper", "share": paper, "seconds": None})
    order = [name for name, _ in COMPONENTS.values()]
    two = {"this run": SERIES[0], "the paper": "#C4C4C4"}
    base = alt.Chart(data(rows)).encode(
        y=alt.Y(
            "stage:N",
            title=None,
            sort=order,
            axis=alt.Axis(labelLimit=240),
        ),
        x=alt.X("share:Q", title="share of the time (%)"),
        yOffset=alt.YOffset("source:N", sort=list(two)),
    )
    bars = base.mark_bar().encode(
        color=alt.Color("source:N", scale=colours(two), sort=list(two), legend=bottom_legend()),
        tooltip=[
            "stage:N",
            "source:N",
            alt.Tooltip("share:Q", format=".1f"),
            alt.Tooltip("seconds:Q", format=".1f"),
        ],
    )
    text = base.mark_text(align="left", dx=3, fontSize=10).encode(text=alt.Text("share:Q", format=".1f"))
    rounds = len(material.rounds)
    caption = (
        f"Wall time over {rounds} committed rounds of this run ({total:,.0f} s in all) beside the shares of"
        " the paper's run on eight H200 GPUs. Extraction counts where the round waited for it;"
        f" {beside:,.0f} s of it ran beside the solver's training and took no time of their own."
        f" {material.setting}"
    )
    return Figure(sized(alt.layer(bars, text)), rows, caption)
