"""Counterfactual replay over recorded observations: what would k, θ_up or a dropped cause have changed?

Equations 1 and 5 to 8 of the paper are applied again to what was recorded: the votes of the questions that
aimed at a cause, and the failures put down to it. Up to and including the first commit that comes out
differently the answer is *exact*: until then the same schedules drew the same questions. Every later row is
*open-loop*: the recorded questions and failures are held fixed, though from there on the run would have
drawn others. What would change the solver's training data (`retention.py`) needs a rerun.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import msgspec

from diagevo.memory.decide import next_epsilon
from diagevo.memory.events import CauseCreated, CauseMatched, RoundCommitted, RunConfigured
from diagevo.memory.history import AsOf, History, expect
from diagevo.memory.model import Settings, settings_of
from diagevo.memory.records import Recorded
from diagevo.memory.schedule import probabilities
from diagevo.memory.upcast import CURRENT, upcast

Status = Literal["exact", "open-loop"]


class _Votes(msgspec.Struct, frozen=True, gc=False):
    """What a what-if reads of a CandidateScored."""

    cause_id: str | None
    responses: int
    first: int
    second: int
    label: str | None
    verdict: str
    label_true: bool | None = None


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


@dataclass(slots=True)
class Observed:
    """What was recorded of one round, as far as Equations 3 and 5 to 8 look at it."""

    round: int
    config: Mapping[str, Any]
    """In force in that round; a fork may change it."""
    scores: dict[str, tuple[int, Fraction]] = field(default_factory=dict)
    """Of each cause aimed at: |P_t(e)| and Σ p1."""
    failures: Counter[str] = field(default_factory=Counter)
    """Δ: failures put down to each cause, the one that created it included."""
    created: list[str] = field(default_factory=list)
    votes: Counter[VoteKind] = field(default_factory=Counter)
    committed: RoundCommitted | None = None
    position: int = 0

    @property
    def settings(self) -> Settings:
        return settings_of(self.config)


def observations(history: History, as_of: AsOf) -> list[Observed]:
    """One streaming pass: every committed round by then, in order."""
    found: list[Observed] = []
    now = Observed(1, {})
    types = ["RunConfigured", "CandidateScored", "CauseMatched", "CauseCreated", "RoundCommitted"]
    for recorded in history.log.read(history.run_id, types=types, until=as_of.position):
        match recorded.type:
            case "RunConfigured":
                now.config = expect(recorded, RunConfigured).config
            case "CandidateScored":
                _scored(now, recorded)
            case "CauseMatched":
                now.failures[expect(recorded, CauseMatched).cause_id] += 1
            case "CauseCreated":
                cause_id = expect(recorded, CauseCreated).cause_id
                now.created.append(cause_id)
                now.failures[cause_id] += 1
            case "RoundCommitted":
                now.committed, now.position = expect(recorded, RoundCommitted), recorded.position
                found.append(now)
                now = Observed(recorded.round + 1, now.config)
    return found


def _scored(now: Observed, recorded: Recorded) -> None:
    if recorded.schema_version == CURRENT["CandidateScored"]:
        votes = _decode(recorded.payload)
    else:
        payload = msgspec.json.decode(recorded.payload)
        votes = msgspec.convert(upcast(recorded.type, recorded.schema_version, payload), _Votes)
    valid = votes.verdict != "invalid"
    now.votes[
        VoteKind(
            votes.responses,
            votes.first,
            votes.second,
            votes.label is not None,
            valid,
            votes.verdict,
            votes.label_true,
        )
    ] += 1
    if votes.cause_id is not None and valid:
        questions, consistency = now.scores.get(votes.cause_id, (0, Fraction(0)))
        now.scores[votes.cause_id] = questions + 1, consistency + Fraction(votes.first, votes.responses)


@dataclass(frozen=True, slots=True)
class Changes:
    """What is asked about. None means: as recorded."""

    k: Fraction | None = None
    theta_up: Fraction | None = None
    drop: frozenset[str] = frozenset()
    since: int = 1
    """The round from which on k and θ_up are changed; before it they are as recorded."""

    def at(self, round: int, settings: Settings) -> Settings:
        """What holds at the commit of `round` under the changes."""
        if round < self.since:
            return settings
        changed = {name: v for name in ("k", "theta_up") if (v := getattr(self, name)) is not None}
        return msgspec.structs.replace(settings, **changed)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One commit as it would have come out, beside the recorded one."""

    round: int
    status: Status
    failures: int
    reference_failures: int | None
    z: Fraction | None
    epsilon_next: Fraction
    active: int
    mastered: int
    promoted: tuple[str, ...]
    reactivated: tuple[str, ...]
    recorded_failures: int
    recorded_epsilon_next: Fraction
    recorded_active: int
    recorded_mastered: int
    frequencies: Mapping[str, int]
    """f of the Active causes."""

    @property
    def differs(self) -> bool:
        return (self.failures, self.epsilon_next, self.active, self.mastered) != (
            self.recorded_failures,
            self.recorded_epsilon_next,
            self.recorded_active,
            self.recorded_mastered,
        )

    @property
    def probabilities(self) -> dict[str, Fraction]:
        return probabilities(self.frequencies)


@dataclass(frozen=True, slots=True)
class Answer:
    """The rounds under the changes. `diverges`: the first round that would have drawn from another
    schedule."""

    changes: Changes
    rounds: tuple[Outcome, ...]
    diverges: int | None


def what_if(observed: Sequence[Observed], changes: Changes) -> Answer:
    """Replay the recorded rounds under `changes`."""
    as_recorded = _play(observed, Changes())
    changed = _play(observed, changes)
    rounds: list[Outcome] = []
    diverges: int | None = None
    dropped = False
    for round_, base, new in zip(observed, as_recorded, changed, strict=True):
        committed = round_.committed
        assert committed is not None
        dropped = dropped or not changes.drop.isdisjoint(round_.created)
        exact = diverges is None and not dropped
        rounds.append(
            Outcome(
                round_.round,
                "exact" if exact else "open-loop",
                new.failures,
                new.reference,
                Fraction(new.failures, new.reference) if new.reference else None,
                new.epsilon,
                len(new.frequencies),
                len(new.mastered),
                new.promoted,
                new.reactivated,
                committed.failures,
                Fraction(committed.epsilon_next),
                committed.active,
                committed.mastered,
                new.frequencies,
            )
        )
        if diverges is None and not base.draws_like(new):
            diverges = round_.round + 1
    return Answer(changes, tuple(rounds), diverges)


@dataclass(frozen=True, slots=True)
class _Played:
    frequencies: dict[str, int]
    mastered: frozenset[str]
    failures: int
    reference: int | None
    epsilon: Fraction
    opening: Fraction
    """ε that the next round is drawn with: another one where the run was configured anew in between."""
    promoted: tuple[str, ...]
    reactivated: tuple[str, ...]

    def draws_like(self, other: "_Played") -> bool:
        """Whether the next round is drawn alike: ε, p, and the partners to stitch."""
        return (self.opening, self.frequencies, self.mastered) == (
            other.opening,
            other.frequencies,
            other.mastered,
        )


def _play(observed: Sequence[Observed], changes: Changes) -> Iterator[_Played]:
    """Equations 5 to 8, then 1, round after round."""
    drop = changes.drop
    frequency: dict[str, int] = {}
    """f of every cause; 0 means Mastered."""
    reference: int | None = None
    for round_, following in zip(observed, [*observed[1:], *observed[-1:]], strict=True):
        settings = changes.at(round_.round, round_.settings)
        promoted = []
        for cause, (questions, consistency) in round_.scores.items():
            active = frequency.get(cause, 0) > 0
            enough = questions >= settings.promotion_questions
            if settings.state_updates and active and enough and consistency / questions >= settings.theta_up:
                promoted.append(cause)
        for cause in promoted:
            frequency[cause] = 0
        reactivated = []
        for cause in round_.created:
            if cause not in drop:
                frequency[cause] = 0
        for cause, count in round_.failures.items():
            if cause in drop:
                continue
            if frequency[cause] == 0 and cause not in round_.created:
                reactivated.append(cause)
            frequency[cause] += count
        failures = sum(frequency.values())
        if reference is None and failures:
            reference = failures
        yield _Played(
            {cause: f for cause, f in frequency.items() if f},
            frozenset(cause for cause, f in frequency.items() if not f),
            failures,
            reference,
            next_epsilon(settings, failures, reference),
            next_epsilon(changes.at(round_.round, following.settings), failures, reference),
            tuple(sorted(promoted, key=_number)),
            tuple(sorted(reactivated, key=_number)),
        )


def _number(cause_id: str) -> int:
    return int(cause_id[1:])
