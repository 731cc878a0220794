"""Double-confidence filtering: counted votes, the verdict, and the inequality that decided, with its
numbers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # a process that counts votes reads no settings
    from diagevo.equations.settings import Filter

Verdict = Literal["kept", "too_easy", "too_hard", "contested", "no_label"]


def counted(votes: Sequence[tuple[str, int]]) -> tuple[str | None, int, int, int]:
    """The majority of the votes. One loop, because a replay calls this for every candidate.

    Args:
        votes: answers with their counts, in the order of first appearance.

    Returns:
        The majority answer (on a tie, the one that appeared first), its votes, the votes of the second most
        common answer, and all votes. None and zeros without votes.

    Raises:
        ValueError: if a count is below 1.
    """
    label, first, second, total = None, 0, 0, 0
    for answer, count in votes:
        if count < 1:
            raise ValueError(f"an answer with {count} votes")
        total += count
        if count > first:
            label, first, second = answer, count, first
        elif count > second:
            second = count
    return label, first, second, total


@lru_cache(maxsize=4096)
def verdict(
    first: int | Fraction, second: int | Fraction, responses: int, labelled: bool, settings: Filter
) -> Verdict:
    """Equation 3: p_low ≤ p₁ ≤ p_high and p₁ ≥ τ·p₂, both as shares of all N responses.

    A candidate without a label is never kept. Candidates whose question is unreadable are `invalid` before
    they have votes and do not come here.

    Args:
        first: votes of the majority answer, or p₁ itself with `responses` = 1.
        second: votes of the second most common answer, or p₂ itself with `responses` = 1.
        responses: N, all responses, with or without an answer.
        labelled: whether the candidate has a label.
        settings: the filter in force.

    Returns:
        `kept`, or the first of these that applies: `no_label`, `too_hard`, `too_easy`, `contested`.
    """
    if not labelled:
        return "no_label"
    if settings.variant == "none":
        return "kept"
    low, high, tau = settings.p_low, settings.p_high, settings.tau
    if first * low.denominator < low.numerator * responses:
        return "too_hard"
    if first * high.denominator > high.numerator * responses:
        return "too_easy"
    if settings.variant == "double" and first * tau.denominator < tau.numerator * second:
        return "contested"
    return "kept"


def reason(p1: Fraction, p2: Fraction, labelled: bool, settings: Filter) -> str:
    """The constraint that decided the verdict, with its numbers.

    Args:
        p1: the majority's share of all N responses.
        p2: the share of the second most common answer.
        labelled: whether the candidate has a label.
        settings: the filter in force.
    """
    low, high, tau = settings.p_low, settings.p_high, settings.tau
    match verdict(p1, p2, 1, labelled, settings):
        case "no_label":
            return "no response has a boxed answer"
        case "too_hard":
            return f"p₁ = {p1} < p_low = {low}"
        case "too_easy":
            return f"p₁ = {p1} > p_high = {high}"
        case "contested":
            return f"p₁ = {p1} < τ·p₂ = {tau}·{p2} = {tau * p2}"
        case "kept" if settings.variant == "none":
            return "the filter is off"
        case "kept" if settings.variant == "absolute":
            return f"{low} ≤ p₁ = {p1} ≤ {high}; τ is off"
        case "kept":
            return f"{low} ≤ p₁ = {p1} ≤ {high} and p₁ ≥ τ·p₂ = {tau}·{p2} = {tau * p2}"


def failing(rewards: Sequence[float], pass_at: float) -> list[int]:
    """Which samples of a group did not pass.

    Args:
        rewards: one a sample.
        pass_at: the least reward that passes.

    Returns:
        The indices of the others, ascending.
    """
    return [sample for sample, reward in enumerate(rewards) if reward < pass_at]


def votes_of_rewards(passes: int, responses: int) -> list[tuple[str, int]]:
    """A group's passes and failures in the form of votes: ("passed", n), ("failed", m), without zeros."""
    return [vote for vote in (("passed", passes), ("failed", responses - passes)) if vote[1]]


def verdict_of_rewards(passes: int, responses: int) -> Verdict:
    """The verdict on a group of another trainer, in place of Equation 3 (not in the paper).

    Groups with both passes and failures are kept: only these give GRPO a gradient, and only in these can a
    failure be compared with a pass.

    Args:
        passes: rollouts that passed.
        responses: all rollouts of the group with a reward.

    Returns:
        `kept`, `too_hard` (no pass) or `too_easy` (no failure).
    """
    if passes == 0:
        return "too_hard"
    return "too_easy" if passes == responses else "kept"


def reason_of_rewards(passes: int, responses: int) -> str:
    """What decided `verdict_of_rewards`, with its numbers."""
    if passes == 0:
        return f"none of {responses} rewards passed: there is no reference to compare with"
    if passes == responses:
        return f"all {responses} rewards passed: there is nothing to diagnose"
    return f"{passes} of {responses} rewards passed: each failure stands beside a pass"
