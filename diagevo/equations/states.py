"""How a cause's state and frequency change in a round: promoted by votes, counted and reactivated by
failures."""

from fractions import Fraction
from typing import Literal, assert_never

import msgspec

from diagevo.equations.settings import Settings

CauseState = Literal["active", "mastered", "dismissed"]
"""Of an error cause. An Active one is aimed at, a Mastered one is stitched to others (the paper's Section 3);
one dismissed as not the model's fault is neither and leaves F."""
Part = Literal["target", "partner"]
"""In a schedule: what questions are aimed at, and what they are stitched to."""


def part_in_schedule(state: CauseState) -> Part | None:
    """The part of a cause in the schedule. The f of a target counts towards F; a cause without a part leaves
    F, ε, p, exports and first screens."""
    match state:
        case "active":
            return "target"
        case "mastered":
            return "partner"
        case "dismissed":
            return None
        case _:
            assert_never(state)


class Tally(msgspec.Struct, frozen=True, gc=False):
    """P_t(e) so far: questions, and Σ p₁ as a quotient that is not reduced."""

    questions: int
    """|P_t(e)|."""
    agreeing: int
    responses: int
    """Σ p₁ = agreeing / responses."""

    @property
    def score(self) -> Fraction:
        """Equation 6: acc_t(e), the mean p₁ over the questions that aim at the cause."""
        return Fraction(self.agreeing, self.responses * self.questions)


def tallied(tally: Tally | None, agreeing: int, responses: int, questions: int = 1) -> Tally:
    """Add questions to a tally. With the same number of responses each time, this is a sum of integers.

    Args:
        tally: the tally so far, None for an empty one.
        agreeing: responses that agree with the label, over all the new questions.
        responses: responses per question.
        questions: number of new questions.

    Returns:
        The new tally.
    """
    if tally is None:
        return Tally(questions, agreeing, responses)
    if responses == tally.responses:
        return Tally(tally.questions + questions, tally.agreeing + agreeing, responses)
    total = Fraction(tally.agreeing, tally.responses) + Fraction(agreeing, responses)
    return Tally(tally.questions + questions, total.numerator, total.denominator)


def reaches(tally: Tally | None, settings: Settings) -> bool:
    """The condition of Equation 7: enough questions, and acc_t(e) ≥ θ_up, computed in integers.

    Args:
        tally: the votes of the round's questions that aim at the cause, None without any.
        settings: θ_up, the minimum number of questions, and whether states are updated at all.

    Returns:
        Whether an Active cause with these votes is promoted.
    """
    if tally is None or not settings.state_updates or tally.questions < settings.promotion_questions:
        return False
    numerator, denominator = settings.theta_up.as_integer_ratio()
    return tally.agreeing * denominator >= numerator * tally.responses * tally.questions


def provisional(
    state: CauseState, frequency: int, tally: Tally | None, settings: Settings
) -> tuple[CauseState, int]:
    """Equation 7: an Active cause whose votes reach θ_up becomes Mastered (its provisional state).

    Args:
        state: the committed state.
        frequency: f, the committed frequency.
        tally: the votes of the round's questions that aim at the cause.
        settings: see `reaches`.

    Returns:
        ("mastered", 0) if promoted, else `state` and `frequency` unchanged.
    """
    if part_in_schedule(state) == "target" and reaches(tally, settings):
        return "mastered", 0
    return state, frequency


def counted(state: CauseState, frequency: int, failures: int) -> tuple[CauseState, int]:
    """Equation 8: the state and frequency after Δ new failures, given at once or one at a time.

    Args:
        state: the provisional state.
        frequency: f, the provisional frequency.
        failures: Δ, the new failures of the cause.

    Returns:
        An Active cause adds Δ to f. A Mastered cause with Δ above 0 becomes Active again with f = Δ. A
        dismissed cause stays so and adds Δ to f, in case the dismissal is undone.
    """
    if failures == 0:
        return state, frequency
    match state:
        case "active" | "dismissed":
            return state, frequency + failures
        case "mastered":
            return "active", failures
        case _:
            assert_never(state)


def reinstated(frequency: int, promoted: bool) -> CauseState:
    """The state of a cause whose dismissal is undone, or whose failures were moved away. One without failures
    since its promotion is Mastered until the next; one that was never promoted is Active whatever its f."""
    return "active" if frequency or not promoted else "mastered"


def settled(state: CauseState, frequency: int, promoted: bool) -> CauseState:
    """The state of a cause with this f at a commit. A dismissed one keeps its f in case it is reinstated."""
    match state:
        case "active" | "mastered":
            return reinstated(frequency, promoted)
        case "dismissed":
            return state
        case _:
            assert_never(state)


def withdrawn(state: CauseState, frequency: int, promoted: bool) -> tuple[CauseState, int]:
    """The state and frequency after one of the f failures is assigned to another cause."""
    return settled(state, frequency - 1, promoted), frequency - 1
