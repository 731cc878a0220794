"""Rounds as they were played: the configuration in force, the schedule, the votes, the failures."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec

from diagevo.equations.schedule import next_epsilon
from diagevo.equations.settings import Filter, Settings
from diagevo.equations.states import Tally, tallied
from diagevo.memory.audit.history import AsOf, History, expect
from diagevo.memory.events import CandidateScored, CauseCreated, CauseMatched, RoundCommitted, RoundOpened
from diagevo.memory.events.records import Recorded
from diagevo.memory.events.upcast import CURRENT, upcast
from diagevo.memory.state.configured import Configured


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

    def frequency(self, cause_id: str | None) -> int | None:
        """f of the cause in the schedule; None where it was not aimed at."""
        return next((w.frequency for w in self.schedule.weights if w.cause_id == cause_id), None)


def played(history: History, as_of: AsOf) -> Iterator[Played]:
    """Every round that was opened by then, in order."""
    for recorded in history.events(RoundOpened, as_of=as_of):
        yield _played(history, recorded, expect(recorded, RoundOpened))


def round_played(history: History, number: int) -> Played:
    """One round, which was opened."""
    found = history.find(RoundOpened, number, "")
    assert found is not None
    return _played(history, *found)


def _played(history: History, recorded: Recorded, schedule: RoundOpened) -> Played:
    return Played(recorded.round, recorded.position, history.in_force(recorded.position), schedule)


def epsilon_after(history: History, round: int, failures: int, reference: int | None) -> Fraction:
    """ε that the round after a committed one is drawn with: of its schedule, or of the one that it would get.
    The commit's own ε, unless the run was configured anew since."""
    found = history.find(RoundOpened, round + 1, "")
    if found is not None:
        return Fraction(found[1].epsilon)
    return next_epsilon(history.in_force().settings, failures, reference)


class _Votes(msgspec.Struct, frozen=True, gc=False):
    """What is read of a CandidateScored: a run has most of these, and a model takes long to validate."""

    cause_id: str | None
    responses: int
    first: int
    second: int
    label: str | None
    verdict: str
    label_true: bool | None = None
    votes_are: str = "answers"


_decode = msgspec.json.Decoder(_Votes).decode


@dataclass(frozen=True, slots=True)
class VoteKind:
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


def kind_of(votes: _Votes | CandidateScored) -> VoteKind:
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
    """Δ: failures put down to each cause, the one that created it included."""
    created: list[str] = field(default_factory=list[str])
    votes: Counter[VoteKind] = field(default_factory=Counter[VoteKind])
    committed: RoundCommitted | None = None
    position: int = 0

    @property
    def config(self) -> Mapping[str, Any]:
        return self.configured.config

    @property
    def settings(self) -> Settings:
        return self.configured.settings

    @property
    def filter(self) -> Filter:
        return self.configured.filter


def observations(history: History, as_of: AsOf) -> list[Observed]:
    """One streaming pass: every committed round by then, in order."""
    found: list[Observed] = []
    now: Observed | None = None
    types = ["RoundOpened", "CandidateScored", "CauseMatched", "CauseCreated", "RoundCommitted"]
    for recorded in history.log.read(history.run_id, types=types, until=as_of.position):
        if recorded.type == "RoundOpened":
            configured = history.in_force(recorded.position)
            if now is not None:
                now.following = configured
            now = Observed(recorded.round, configured, configured)
            continue
        assert now is not None
        match recorded.type:
            case "CandidateScored":
                _scored(now, recorded)
            case "CauseMatched":
                now.failures[expect(recorded, CauseMatched).cause_id] += 1
            case "CauseCreated":
                cause_id = expect(recorded, CauseCreated).cause_id
                now.created.append(cause_id)
                now.failures[cause_id] += 1
            case _:
                now.committed, now.position = expect(recorded, RoundCommitted), recorded.position
                found.append(now)
    if found and now is found[-1]:
        found[-1].following = history.in_force(as_of.position)
    return found


def _scored(now: Observed, recorded: Recorded) -> None:
    if recorded.schema_version == CURRENT["CandidateScored"]:
        votes = _decode(recorded.payload)
    else:
        payload = msgspec.json.decode(recorded.payload)
        votes = msgspec.convert(upcast(recorded.type, recorded.schema_version, payload), _Votes)
    kind = kind_of(votes)
    now.votes[kind] += 1
    if votes.cause_id is not None and kind.valid:
        tally = now.scores.get(votes.cause_id)
        now.scores[votes.cause_id] = tallied(tally, votes.first, votes.responses)
