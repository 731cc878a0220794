"""Rounds as they were played: the configuration in force, the schedule, the votes, the failures."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec
from sqlalchemy import func, select

from diagevo.equations.policy import built_in, shares
from diagevo.equations.schedule import Share
from diagevo.equations.states import Tally, tallied
from diagevo.errors import DamagedError
from diagevo.memory.events import CandidateScored, CauseCreated, RoundCommitted, RoundOpened
from diagevo.memory.events.decode import Fact
from diagevo.memory.history import AsOf, History
from diagevo.memory.log.log import EVENT
from diagevo.memory.state.stored_config import Configured


@dataclass(frozen=True, slots=True)
class Played:
    """A round that was opened, and what it was played with."""

    number: int
    position: int
    """Of its schedule."""
    configured: Configured
    schedule: RoundOpened

    @property
    def epsilon(self) -> Fraction:
        return Fraction(self.schedule.epsilon)

    def aimed(self, cause_id: str | None) -> tuple[int, Share] | None:
        """f and p of the cause in the schedule; None where it was not aimed at."""
        frequencies = {weight.cause_id: weight.frequency for weight in self.schedule.weights}
        if cause_id is None or cause_id not in frequencies:
            return None
        return frequencies[cause_id], shares(built_in(self.configured.settings), frequencies)[cause_id]


def played(history: History, as_of: AsOf) -> Iterator[Played]:
    """Every round that was opened by then, in order."""
    for opened in history.events(RoundOpened, as_of=as_of):
        yield _played(history, opened)


def round_played(history: History, number: int) -> Played:
    """One round, which was opened."""
    found = history.find(RoundOpened, number, "")
    assert found is not None
    return _played(history, found)


def _played(history: History, opened: Fact[RoundOpened]) -> Played:
    return Played(opened.round, opened.position, history.in_force(opened.position), opened.event)


class VoteKind(msgspec.Struct, frozen=True, gc=False):
    """Questions with the same figures: N, c1, c2, whether a label and a question are there, its verdict."""

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
    """What was recorded of one round, as far as filter (Equation 3) and states (Equations 6 to 8) go."""

    round: int
    configured: Configured
    """In force in that round; a fork may change it."""
    following: Configured
    """In force when the next round was opened, or now: what its schedule is made with."""
    scores: dict[str, Tally] = field(default_factory=dict[str, Tally])
    """P_t(e) of each cause aimed at."""
    failures: Counter[str] = field(default_factory=Counter[str])
    """Δ: failures assigned to each cause, the one that created it included."""
    created: list[str] = field(default_factory=list[str])
    votes: Counter[VoteKind] = field(default_factory=Counter[VoteKind])
    committed: RoundCommitted | None = None
    position: int = 0


def observations(history: History, as_of: AsOf) -> list[Observed]:
    """Every committed round that counted then, in order. What a run has by the hundred thousand, its votes
    and matches, is counted a round at a time and never held."""
    found: list[Observed] = []
    now: Observed | None = None
    created: set[str] = set()
    gone = history.superseded(as_of)
    for fact in history.events(RoundOpened, CauseCreated, RoundCommitted, as_of=as_of):
        if fact.round in gone:
            continue
        if isinstance(fact.event, RoundOpened):
            configured = history.in_force(fact.position)
            if now is not None:
                now.following = configured
            now = Observed(fact.round, configured, configured)
            continue
        assert now is not None
        if isinstance(fact.event, CauseCreated):
            now.created.append(fact.event.cause_id)
            continue
        created |= set(now.created)
        now.failures = _matched(history, now, created)
        for (cause_id, kind), count in _votes(history, now.round).items():
            _scored(now, cause_id, kind, count)
        now.committed, now.position = fact.event, fact.position
        found.append(now)
    if found and now is found[-1]:
        found[-1].following = history.in_force(as_of.position)
    return found


def _matched(history: History, now: Observed, created: Collection[str]) -> Counter[str]:
    """Δ of a round. Raises DamagedError where a failure is assigned to a cause that nothing created."""
    query = (
        select(EVENT.c.cause_id, func.count())
        .where(EVENT.c.run_id == history.run_id, EVENT.c.type == "CauseMatched", EVENT.c.round == now.round)
        .group_by(EVENT.c.cause_id)
    )
    with history.database.read() as connection:
        counts = Counter({row[0]: row[1] for row in connection.execute(query)})
    if unknown := counts.keys() - created:
        cause = min(map(str, unknown))
        raise DamagedError(f"round {now.round} counts a failure under {cause}, which nothing created")
    counts.update(now.created)
    return counts


def _votes(history: History, round: int) -> Counter[tuple[str | None, VoteKind]]:
    """The questions of a round with the same aim and the same figures."""
    counts: Counter[tuple[str | None, VoteKind]] = Counter()
    for fact in history.events(CandidateScored, round=round):
        counts[fact.event.cause_id, kind_of(fact.event)] += 1
    return counts


def _scored(now: Observed, cause_id: str | None, kind: VoteKind, count: int) -> None:
    now.votes[kind] += count
    if cause_id is not None and kind.valid:
        tally = now.scores.get(cause_id)
        now.scores[cause_id] = tallied(tally, count * kind.first, kind.responses, count)
