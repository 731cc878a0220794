"""Rounds as they were played: the configuration in force, the schedule, the votes, the failures."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from diagevo.equations.policy import built_in, shares
from diagevo.equations.schedule import Share
from diagevo.equations.states import Tally, tallied
from diagevo.memory.events import (
    CandidateScored,
    CauseDismissed,
    CauseReinstated,
    FailureAssigned,
    FailureUnassigned,
    RoundCommitted,
    RoundOpened,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.history import AsOf, History
from diagevo.memory.log.tables import CauseCounts
from diagevo.memory.read.asking import select_rows
from diagevo.memory.state.stored_config import Configured


@dataclass(frozen=True, slots=True)
class OpenedRound:
    """A round that was opened, and its settings."""

    number: int
    position: int
    """The position of its schedule."""
    configured: Configured
    schedule: RoundOpened

    @property
    def epsilon(self) -> Fraction:
        return Fraction(self.schedule.epsilon)

    def aimed(self, cause_id: str | None) -> tuple[int, Share] | None:
        """f and p of the cause in the schedule; None if it was not aimed at."""
        frequencies = {weight.cause_id: weight.frequency for weight in self.schedule.weights}
        if cause_id is None or cause_id not in frequencies:
            return None
        return frequencies[cause_id], shares(built_in(self.configured.settings), frequencies)[cause_id]


def opened_rounds(history: History, as_of: AsOf) -> Iterator[OpenedRound]:
    """Every round that was opened by then, in order."""
    for opened in history.events(RoundOpened, as_of=as_of):
        yield _played(history, opened)


def round_played(history: History, number: int) -> OpenedRound:
    """One round, which was opened."""
    found = history.find(RoundOpened, number, "")
    assert found is not None
    return _played(history, found)


def _played(history: History, opened: Fact[RoundOpened]) -> OpenedRound:
    return OpenedRound(opened.round, opened.position, history.in_force(opened.position), opened.event)


class VoteKind(msgspec.Struct, frozen=True, gc=False):
    """Questions with the same figures: N, c1, c2, whether they have a label and a question, the verdict."""

    responses: int
    first: int
    second: int
    labelled: bool
    valid: bool
    verdict: str
    label_true: bool | None
    rewards: bool
    """Whether another trainer's rewards were counted: the filter (Equation 3) was not asked."""


def kind_of(votes: CandidateScored) -> VoteKind:
    return VoteKind(
        responses=votes.responses,
        first=votes.first,
        second=votes.second,
        labelled=votes.label is not None,
        valid=votes.verdict != "invalid",
        verdict=votes.verdict,
        label_true=votes.label_true,
        rewards=votes.votes_are == "rewards",
    )


@dataclass(slots=True)
class Observed:
    """The record of one round that determines filter (Equation 3) and states (Equations 6 to 8)."""

    round: int
    position: int
    committed: RoundCommitted
    configured: Configured
    """In force in that round; a fork may change it."""
    following: Configured
    """In force when the next round was opened, or now: what its schedule is made with."""
    failures: Mapping[str, int]
    """Δ: failures assigned to each cause, the one that created it included."""
    created: Sequence[str]
    scores: dict[str, Tally] = field(default_factory=dict[str, Tally])
    """P_t(e) of each cause aimed at."""
    votes: Counter[VoteKind] = field(default_factory=Counter[VoteKind])
    judged: Sequence["Judged"] = ()
    """Changes of causes and failures by hand between its commit and the next round."""


Judged = CauseDismissed | CauseReinstated | FailureAssigned | FailureUnassigned


def observations(history: History, as_of: AsOf) -> list[Observed]:
    """Every committed round that counted then, in order. Votes, of which a run has hundreds of thousands,
    are counted a round at a time and never held in memory."""
    gone = history.superseded(as_of)
    opened = {one.number: one for one in opened_rounds(history, as_of) if one.number not in gone}
    following = dict(zip(opened, [*opened.values()][1:], strict=False))
    failures = defaultdict[int, dict[str, int]](dict)
    for row in select_rows(
        history, "cause_history", CauseCounts, "failures > 0"
    ):  # the view has only what counts now
        failures[row.round][row.cause_id] = row.failures
    created = defaultdict[int, list[str]](list)
    for cause in history.state(as_of).causes.values():
        # A cause added after a superseding belongs to the next round.
        created[min((n for n in opened if n >= cause.created_round), default=0)].append(cause.cause_id)
    judged = defaultdict[int, list[Judged]](list)
    for fact in history.events(
        CauseDismissed, CauseReinstated, FailureAssigned, FailureUnassigned, as_of=as_of
    ):
        undone = (s for s in history.supersedings if fact.position < s.position <= as_of.position)
        if not any(s.event.first <= fact.round for s in undone):
            # After a superseding the last round is one that counts no more: it is said of those before it.
            judged[max((n for n in opened if n <= fact.round), default=0)].append(fact.event)
    found: list[Observed] = []
    for commit in history.counted(as_of):
        number, configured = commit.round, opened[commit.round].configured
        after = following[number].configured if number in following else history.in_force(as_of.position)
        now = Observed(
            round=number,
            position=commit.position,
            committed=commit.event,
            configured=configured,
            following=after,
            failures=failures[number],
            created=created[number],
            judged=judged[number],
        )
        for fact in history.events(CandidateScored, round=number):
            votes, cause_id = fact.event, fact.event.cause_id
            now.votes[kind_of(votes)] += 1
            if cause_id is not None and votes.verdict != "invalid":
                now.scores[cause_id] = tallied(now.scores.get(cause_id), votes.first, votes.responses)
        found.append(now)
    return found
