"""What the filter did with the candidates, and where the time went."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from msgspec.structs import replace

from diagevo.equations.filter import verdict
from diagevo.equations.settings import Filter
from diagevo.errors import NotFoundError
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
from diagevo.report.tables import TITLES, Cell, ReportTable

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
    used = _by_round(material, lambda f: f"p₁ from {f.p_low} to {f.p_high}, p₁ ≥ τ p₂ with τ = {f.tau}")
    caption = (
        f"What double-confidence filtering (Equation 3) did with each round's candidates: {used}."
        f" Contested: within the range, but the second answer is too close. {material.setting}"
    )
    if all(c.rewards for c in material.candidates):
        caption = (
            "What the trainer's rewards made of each round's groups: kept, with passes and failures; too"
            f" hard, all failed; too easy, all passed. {material.setting}"
        )
    return Figure(partial(_verdicts, rows), rows, caption)


def _verdicts(rows: Rows) -> Any:
    alt = altair()
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
    return sized(bars)


def retention(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.candidates:
        return no_rounds(material)
    if all(c.rewards for c in material.candidates):
        return Missing(
            "its votes are a trainer's rewards: no τ decided",
            f"diagevo report build --only filter --run {material.run_id}",
        )
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
            kept = sum(
                count
                for (p1, p2, labelled), count in shares.items()
                if verdict(p1, p2, 1, labelled, chosen) == "kept"
            )
            rows.append(
                {"round": facts.round, "tau": float(tau), "kept": kept, "share": 100 * kept / len(of_round)}
            )
    bands = _by_round(material, lambda f: f"p₁ between {f.p_low} and {f.p_high}")
    caption = (
        "Share of each round's candidates that a filter with another τ would have retained,"
        " recomputed exactly"
        f" from the recorded votes; {bands}. The dotted line is the run's own τ:"
        f" {_by_round(material, lambda f: str(f.tau))}."
        f" The questions themselves are those the run drew: no other training is implied. {material.setting}"
    )
    taus = sorted({float(configured.filter.tau) for configured in material.configured.values()})
    return Figure(partial(_retained, rows, taus), rows, caption)


def _retained(rows: Rows, taus: Sequence[float]) -> Any:
    alt = altair()
    rounds = list(dict.fromkeys(row["round"] for row in rows))
    legend = alt.Legend(
        orient="bottom", title="round", titleOrient="left", symbolStrokeWidth=2, symbolSize=300
    )
    dashes = [DASHES[i % len(DASHES)] for i in range(len(rounds))]
    shades = by_lightness(rounds)
    base = alt.Chart(data(rows)).encode(
        x=alt.X("tau:Q", title="τ", scale=alt.Scale(domain=[1, 3])),
        y=alt.Y("share:Q", title="retained candidates (%)", scale=alt.Scale(zero=True)),
        color=alt.Color("round:O", scale=shades, legend=legend),
        strokeDash=alt.StrokeDash(
            "round:O", scale=alt.Scale(domain=list(shades.domain), range=dashes), legend=legend
        ),
    )
    rule = (
        alt.Chart(data([{"tau": tau} for tau in taus]))
        .mark_rule(strokeDash=[2, 3], color="#8A8A8A")
        .encode(x="tau:Q")
    )
    return sized(alt.layer(base.mark_line(strokeWidth=2), rule))


def _by_round(material: Material, words: Callable[[Filter], str]) -> str:
    """What the words say of the filter, with its rounds where a fork has changed it."""
    numbers = [facts.round for facts in material.rounds]
    return by_round(numbers, [words(material.configured[number].filter) for number in numbers])


def time_by_stage(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.seconds:
        return Missing("no stage has recorded its time", material.next_round)
    rows: Rows = []
    spent, beside = _spent(material)
    for part, (name, paper) in COMPONENTS.items():
        if part in spent:
            own = {"share": spent[part].share, "seconds": spent[part].seconds}
            rows.append({"stage": name, "source": "this run", **own})
        if paper is not None:
            rows.append({"stage": name, "source": "the paper", "share": paper, "seconds": None})
    return Figure(partial(_shares, rows), rows, _time_note(material, spent, beside))


def _shares(rows: Rows) -> Any:
    alt = altair()
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
    return sized(alt.layer(bars, text))


@dataclass(frozen=True, slots=True)
class _TimeShare:
    share: float
    """Percent of the whole."""
    seconds: float


def _spent(material: Material) -> tuple[dict[str, _TimeShare], float]:
    """Each component's time, diagnosis and memory also as a whole, and what ran beside training. An older log
    has no time between stages."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for _, part, took in material.seconds:
        seconds["deduplication" if part == "assignment" else part] += took
    beside = seconds.pop("beside training", 0.0)
    total = sum(seconds.values()) or 1.0
    inner = ("extraction", "deduplication", "consolidation", "update")
    seconds["diagnosis"] = sum(seconds[part] for part in inner)
    known = [part for part in COMPONENTS if part in seconds or part != "orchestration"]
    return {part: _TimeShare(100 * seconds[part] / total, seconds[part]) for part in known}, beside


def _time_note(material: Material, spent: Mapping[str, _TimeShare], beside: float) -> str:
    total = sum(each.seconds for part, each in spent.items() if part != "diagnosis")
    abandoned = spent["abandoned"].seconds
    given_up = f" Attempts that were given up took {abandoned:,.0f} s." if abandoned else ""
    return (
        f"Wall time over {len(material.rounds)} committed rounds of this run ({total:,.0f} s in all) beside"
        " the shares of the paper's run on eight H200 GPUs. Extraction counts where the round waited for it;"
        f" {beside:,.0f} s of it ran beside the solver's training and took no time of their own.{given_up}"
        f" Validation, and the commit of the last round, are not in it. {material.setting}"
    )


def time_table(material: Material) -> ReportTable:
    """The paper's table of training time, of a run. Raises NotFoundError where none was recorded."""
    if not material.seconds:
        raise NotFoundError(
            f"no stage of run {material.run_id} has recorded its time",
            hint=f"play a round: {material.next_round}",
        )
    spent, beside = _spent(material)
    rows = {
        name: {
            column: Cell(value, None, 1)
            for column, value in (
                ("time (%)", spent[part].share if part in spent else None),
                ("seconds", spent[part].seconds if part in spent else None),
                ("the paper (%)", paper),
            )
            if value is not None
        }
        for part, (name, paper) in COMPONENTS.items()
    }
    columns = ("time (%)", "seconds", "the paper (%)")
    note = _time_note(material, spent, beside)
    return ReportTable(TITLES["time"], columns, rows, note, first="Component", best=False)
