"""The story of one question: how it was drawn, voted on, filtered, and what failed on it."""

from dataclasses import dataclass
from fractions import Fraction

from diagevo.exact import fraction
from diagevo.memory.events import (
    CandidateScored,
    CandidateVerdict,
    FailureObserved,
    Mode,
    RoundOpened,
)
from diagevo.memory.failures import FailureStory, failure_story
from diagevo.memory.history import AsOf, History, expect
from diagevo.memory.references import Reference


@dataclass(frozen=True, slots=True)
class QuestionStory:
    """A scored candidate with the schedule that it was drawn from."""

    question_id: str
    round: int
    position: int
    opened: int
    """Position of the round's schedule."""
    mode: Mode
    epsilon: Fraction
    cause_id: str | None
    probability: Fraction | None
    """p of the cause that it aims at."""
    stitched_cause_id: str | None
    question: str | None
    responses: int
    votes: tuple[tuple[str, int], ...]
    label: str | None
    label_true: bool | None
    p1: Fraction
    p2: Fraction
    verdict: CandidateVerdict
    reason: str
    failures: tuple[FailureStory, ...]


def question_story(
    history: History, question: Reference, as_of: AsOf, *, full: bool = False
) -> QuestionStory:
    """The story of a question that exists by then."""
    found = history.find(CandidateScored, question.round, question.id, as_of)
    opened = history.find(RoundOpened, question.round, "", as_of)
    assert found is not None
    assert opened is not None
    recorded, event = found
    schedule = opened[1]
    weight = next((w.frequency for w in schedule.weights if w.cause_id == event.cause_id), None)
    failed = dict.fromkeys(
        failure.failure_id
        for r in history.log.read(history.run_id, causation_id=recorded.event_id, until=as_of.position)
        if r.type == "FailureObserved" and (failure := expect(r, FailureObserved))
    )
    responses = event.responses or 1  # an invalid question may have none
    p1, p2 = Fraction(event.first, responses), Fraction(event.second, responses)
    return QuestionStory(
        question.id,
        question.round,
        recorded.position,
        opened[0].position,
        event.mode,
        Fraction(schedule.epsilon),
        event.cause_id,
        Fraction(weight, schedule.failures) if weight is not None else None,
        event.stitched_cause_id,
        history.text(event.question),
        event.responses,
        tuple(event.votes),
        event.label,
        event.label_true,
        p1,
        p2,
        event.verdict,
        _reason(event, p1, p2, history),
        tuple(failure_story(history, Reference("failure", f), as_of, full=full) for f in failed),
    )


def _reason(event: CandidateScored, p1: Fraction, p2: Fraction, history: History) -> str:
    """The inequality of Equation 3 that decided, with its numbers."""
    settings = history.configuration().config.get("filter", {})
    low, high = fraction(str(settings.get("p_low", "1/4"))), fraction(str(settings.get("p_high", "3/4")))
    tau, variant = fraction(str(settings.get("tau", "8/5"))), settings.get("variant", "double")
    match event.verdict:
        case "invalid":
            return "no readable question"
        case "no_label":
            return "no response has a boxed answer"
        case "too_hard":
            return f"p₁ = {p1} < p_low = {low}"
        case "too_easy":
            return f"p₁ = {p1} > p_high = {high}"
        case "contested":
            return f"p₁ = {p1} < τ·p₂ = {tau}·{p2} = {tau * p2}"
        case "kept" if variant == "none":
            return "the filter is off"
        case "kept" if variant == "absolute":
            return f"{low} ≤ p₁ = {p1} ≤ {high}; τ is off"
        case "kept":
            return f"{low} ≤ p₁ = {p1} ≤ {high} and p₁ ≥ τ·p₂ = {tau}·{p2} = {tau * p2}"
