"""How a cause's state and frequency change in a round: promoted by votes, counted and reactivated by
failures."""

from fractions import Fraction
from typing import Literal

import msgspec

from diagevo.equations.settings import Settings

State = Literal["active", "mastered"]


class Tally(msgspec.Struct, frozen=True, gc=False):
    """P_t(e) so far: questions, and Σ p₁ as a quotient that is not reduced."""

    questions: int
    agreeing: int
    responses: int

    @property
    def score(self) -> Fraction:
        """Equation 6: acc_t(e), the mean p₁ over the questions that aim at the cause."""
        return Fraction(self.agreeing, self.responses * self.questions)


def tallied(tally: Tally | None, agreeing: int, responses: int, questions: int = 1) -> Tally:
    """With further questions of as many responses each, of which `agreeing` agree in all. A run asks for the
    same number each time: then it is a sum of integers."""
    if tally is None:
        return Tally(questions, agreeing, responses)
    if responses == tally.responses:
        return Tally(tally.questions + questions, tally.agreeing + agreeing, responses)
    total = Fraction(tally.agreeing, tally.responses) + Fraction(agreeing, responses)
    return Tally(tally.questions + questions, total.numerator, total.denominator)


def reaches(tally: Tally | None, settings: Settings) -> bool:
    """The condition of Equation 7 on the votes: enough questions, and acc ≥ θ_up. In integers: it is asked of
    every cause of every round."""
    if tally is None or not settings.state_updates or tally.questions < settings.promotion_questions:
        return False
    numerator, denominator = settings.theta_up.as_integer_ratio()
    return tally.agreeing * denominator >= numerator * tally.responses * tally.questions


def provisional(state: State, frequency: int, tally: Tally | None, settings: Settings) -> tuple[State, int]:
    """Equation 7: (Mastered, 0) for an Active cause whose votes reach θ_up, else as it was."""
    if state == "active" and reaches(tally, settings):
        return "mastered", 0
    return state, frequency


def counted(state: State, frequency: int, failures: int) -> tuple[State, int]:
    """Equation 8: the state and frequency after Δ new failures. An Active cause adds them; a Mastered one is
    Active again with these alone.

    Δ may come at once or one at a time: the result is the same.
    """
    if failures == 0:
        return state, frequency
    return "active", frequency + failures if state == "active" else failures
