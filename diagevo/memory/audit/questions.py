"""The story of one question: how it was drawn, voted on, filtered, and what failed on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from diagevo.equations.filter import reason, reason_of_rewards
from diagevo.equations.settings import Filter
from diagevo.memory.audit.failures import FailureStory, failure_story
from diagevo.memory.audit.references import Reference
from diagevo.memory.audit.timeline.rounds import round_played
from diagevo.memory.events import CandidateScored, CandidateVerdict, FailureObserved, Mode, Votes
from diagevo.memory.history import AsOf, History, expect

INVALID: Mapping[str, str] = {
    "unreadable": "the completion has no readable question",
    "unanswered": "the challenger gave no answer of its own in a box, which round.boxed_answers asks for",
    "outside_world": "the world has no answer to it",
    "held_out": "the validation set has this question, and training must not see it",
    "too_long": "its prompt is longer than sampling.max_prompt_tokens",
}


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
    truth: str | None
    undecided: int
    """Pairs of its answers that stand apart because comparing them came to no verdict."""
    p1: Fraction
    p2: Fraction
    verdict: CandidateVerdict
    reason: str
    failures: tuple[FailureStory, ...]
    votes_are: Votes
    drawn_round: int | None
    steered: bool
    """Whether the memory drew the prompts of the trainer whose rewards these are."""


def question_story(
    history: History, question: Reference, as_of: AsOf, *, full: bool = False
) -> QuestionStory:
    """The story of a question that exists by then."""
    found = history.find(CandidateScored, question.round, question.id, as_of)
    assert found is not None
    event = found.event
    played = round_played(history, question.round)
    aimed = played.aimed(event.cause_id)
    failed = dict.fromkeys(
        failure.failure_id
        for r in history.log.read(history.run_id, causation_id=found.event_id, until=as_of.position)
        if r.type == "FailureObserved" and (failure := expect(r, FailureObserved))
    )
    responses = event.responses or 1  # an invalid question may have none
    p1, p2 = Fraction(event.first, responses), Fraction(event.second, responses)
    return QuestionStory(
        question_id=question.id,
        round=question.round,
        position=found.position,
        opened=played.position,
        mode=event.mode,
        epsilon=played.epsilon,
        cause_id=event.cause_id,
        probability=None if aimed is None else aimed[1].p,
        stitched_cause_id=event.stitched_cause_id,
        question=history.text(event.question),
        responses=event.responses,
        votes=tuple(event.votes),
        label=event.label,
        label_true=event.label_true,
        truth=event.truth,
        undecided=event.undecided,
        p1=p1,
        p2=p2,
        verdict=event.verdict,
        reason=_reason(event, p1, p2, played.configured.filter),
        failures=tuple(failure_story(history, Reference("failure", f), as_of, full=full) for f in failed),
        votes_are=event.votes_are,
        drawn_round=event.drawn_round,
        steered=history.steered,
    )


def _reason(event: CandidateScored, p1: Fraction, p2: Fraction, filter: Filter) -> str:
    """The inequality that decided in that round."""
    if event.verdict == "invalid":
        return INVALID.get(event.invalid_reason or "", "no question that may be used; why is not recorded")
    if event.votes_are == "rewards":
        return reason_of_rewards(event.first, event.responses)
    return reason(p1, p2, event.label is not None, filter)
