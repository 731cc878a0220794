"""The paper's Figure 4: one cause from the failure that first revealed it to its promotion."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from diagevo.evaluation.protocol import estimate
from diagevo.report.figure import (
    GREY,
    STATES,
    Figure,
    Missing,
    Rows,
    altair,
    data,
    no_rounds,
    percent,
    sized,
    x_round,
)
from diagevo.report.report_data import Candidate, Material, Promotion
from diagevo.text.escaping import visible
from diagevo.text.numbers import count

LINE, LINES, SHOWN = 92, 4, 300


@dataclass(frozen=True)
class _Case:
    """A promoted cause with the questions that aimed at it up to its promotion."""

    promotion: Promotion
    aimed: tuple[Candidate, ...]

    @property
    def rounds(self) -> list[int]:
        return sorted({candidate.round for candidate in self.aimed})

    @property
    def example(self) -> Candidate:
        """A question to show: a kept one before others, then a stitched one, then the earliest."""
        return min(
            self.aimed,
            key=lambda c: (
                c.verdict != "kept",
                c.mode != "stitched",
                c.round,
                int(c.question_id.split(".q")[1]),
            ),
        )


def cases(material: Material) -> list[_Case]:
    """The promotions, best example first: with a kept stitched question, over most rounds, from most
    questions; the earlier on ties."""
    found = []
    for promotion in material.promotions:
        before = [p.round for p in material.promotions if p.cause_id == promotion.cause_id]
        since = max((number for number in before if number < promotion.round), default=0)
        aimed = tuple(
            c
            for c in material.candidates
            if c.cause_id == promotion.cause_id
            and since < c.round <= promotion.round
            and c.verdict != "invalid"
        )
        if aimed:
            found.append(_Case(promotion, aimed))
    return sorted(
        found,
        key=lambda case: (
            (case.example.verdict, case.example.mode) != ("kept", "stitched"),
            -len(case.rounds),
            -len(case.aimed),
            case.promotion.round,
        ),
    )


def case_study(materials: Sequence[Material]) -> Figure | Missing:
    material = materials[0]
    if not material.rounds:
        return no_rounds(material)
    ordered = cases(material)
    if not ordered:
        return Missing("no cause was promoted yet", material.next_round)
    case = ordered[0]
    cause_id = case.promotion.cause_id
    named = {c.cause_id: c for c in material.causes if c.round <= case.promotion.round}
    cause = named[cause_id]
    failure = material.origins[cause_id]
    questions = {c.question_id: c.text for c in material.candidates}
    example = case.example
    partner = named.get(example.stitched_cause_id or "")
    with_ = "" if partner is None else f" stitched with {partner.cause_id} ({partner.description})"
    failed, right = material.trajectories.get(failure, ("", ""))
    later = [c for c in case.aimed if c.question_id in material.agreeing]
    parts = [
        f"(a) {failure} failed on: {questions.get(failure.rpartition('.')[0], '')}",
        f"    what failed: {_end(failed)}",
        f"    what it was compared with: {_end(right)}",
        f"(b) recorded as {cause_id}, Active: {cause.description}; under: {cause.node_label}",
        f"(c) in round {example.round}{with_}: {example.text} ({example.verdict})",
    ]
    if later:
        last = max(later, key=lambda c: (c.round, c == example))
        parts.append(f"(d) in round {last.round}, asked: {last.text}")
        parts.append(f"    the majority's answer: {_end(material.agreeing[last.question_id])}")
    rows: Rows = []
    for number in case.rounds:
        shares = [Fraction(c.first, c.responses) for c in case.aimed if c.round == number]
        found = estimate([float(share) for share in shares])
        rows.append(
            {
                "round": number,
                "cause_id": cause_id,
                "consistency": percent(found.value),
                "exact": str(sum(shares, Fraction(0)) / len(shares)),
                "questions": len(shares),
                "told": f"{percent(found.value):.1f} ({count(len(shares), 'question')})",
                "state": "Mastered" if number == case.promotion.round else "Active",
            }
        )
    threshold = material.configured[case.promotion.round].settings.theta_up
    promoted = f"Mastered in round {case.promotion.round} with {case.promotion.consistency}"
    caption = (
        "The life of a cause. (a) The failure that first revealed it, with both trajectories. (b) The cause"
        " and its skill node. (c) A question that aims at it. (d) A later response, and the mean"
        f" self-consistency of the questions that aim at it, by round; θ_up = {threshold}: {promoted}."
        f" The whole trace: diagevo memory why {cause_id} --run {material.run_id} --full. {material.setting}"
    )
    return Figure(partial(_chart, parts, rows, threshold), rows + [{"text": part} for part in parts], caption)


def _chart(parts: Sequence[str], rows: Rows, threshold: Fraction) -> Any:
    alt = altair()
    text = [{"line": i, "text": line} for i, line in enumerate(_wrapped(parts))]
    story_chart = (
        alt.Chart(data(text))
        .mark_text(align="left", fontSize=11)
        .encode(x=alt.value(0), y=alt.Y("line:O", axis=None), text="text:N")
    )
    y = alt.Y("consistency:Q", title="mean p₁ (%)", scale=alt.Scale(domain=[0, 100]))
    colour = alt.Color(
        "state:N",
        title=None,
        scale=alt.Scale(domain=list(STATES)[:2], range=list(STATES.values())[:2]),
        legend=alt.Legend(orient="bottom", title=None),
    )
    base = alt.Chart(data(rows)).encode(x=x_round(), y=y)
    line = alt.layer(
        base.mark_line(color=GREY, strokeWidth=2),
        base.mark_point(filled=True, size=110, opacity=1).encode(color=colour),
        base.mark_text(dy=-13, fontSize=11).encode(text="told:N"),
        alt.Chart(data([{"threshold": percent(float(threshold))}]))
        .mark_rule(strokeDash=[4, 3], color=GREY)
        .encode(y="threshold:Q"),
    )
    return alt.vconcat(story_chart.properties(width=560, height=15 * len(text)), sized(line, 560, 170))


def _end(trajectory: str) -> str:
    """The end of a long trajectory, where its answer is."""
    text = " ".join(trajectory.split())
    return text if len(text) <= SHOWN else f"… {text[-SHOWN:].partition(' ')[2]}"


def _wrapped(parts: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for part in parts:
        lines += textwrap.wrap(visible(" ".join(part.split())), LINE, max_lines=LINES, placeholder=" …")
    return lines
