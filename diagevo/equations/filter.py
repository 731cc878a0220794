"""Double-confidence filtering: the verdict, and the inequality that decided, with its numbers."""

from fractions import Fraction
from typing import Literal

from diagevo.equations.settings import Filter

Verdict = Literal["kept", "too_easy", "too_hard", "contested", "no_label"]


def verdict(p1: Fraction, p2: Fraction, labelled: bool, settings: Filter) -> Verdict:
    """Equation 3: p_low ≤ p₁ ≤ p_high and p₁ ≥ τ·p₂, both on the shares of all N responses.

    The reasons are tried in this order: no_label, too_hard, too_easy, contested. A candidate without a label
    is never kept. One whose question cannot be read is `invalid`: its caller knows that before there are
    votes.
    """
    if not labelled:
        return "no_label"
    if settings.variant == "none":
        return "kept"
    if p1 < settings.p_low:
        return "too_hard"
    if p1 > settings.p_high:
        return "too_easy"
    if settings.variant == "double" and p1 < settings.tau * p2:
        return "contested"
    return "kept"


def reason(p1: Fraction, p2: Fraction, labelled: bool, settings: Filter) -> str:
    """The constraint that decided the verdict, its numbers put in."""
    low, high, tau = settings.p_low, settings.p_high, settings.tau
    match verdict(p1, p2, labelled, settings):
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


def verdict_of_rewards(passes: int, responses: int) -> Verdict:
    """Ours, in Equation 3's place, where another trainer's rewards are counted: kept are groups that have
    both passes and failures: GRPO has a gradient from these alone, and a failure is compared with a pass."""
    if passes == 0:
        return "too_hard"
    return "too_easy" if passes == responses else "kept"


def reason_of_rewards(passes: int, responses: int) -> str:
    """What decided `verdict_of_rewards`, its numbers put in."""
    if passes == 0:
        return f"none of {responses} rewards passed: there is no reference to compare with"
    if passes == responses:
        return f"all {responses} rewards passed: there is nothing to diagnose"
    return f"{passes} of {responses} rewards passed; kept is a group with both"
