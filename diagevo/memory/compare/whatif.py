"""Counterfactual replay over recorded observations: what would k, θ_up or a dropped cause have changed?

Equations 1 and 6 to 8 of the paper are applied again to what was recorded: the votes of the questions that
aimed at a cause, and the failures assigned to it. Up to and including the first commit that comes out
differently the answer is *exact*: until then the same schedules drew the same questions. Every later row is
*open-loop*: the recorded questions and failures are held fixed, though from there on the run would have
drawn others. Which questions another filter keeps (`retention`) is exact for the recorded questions; what
follows from it, once the solver's training data would have been others, needs a rerun.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import msgspec
from msgspec.structs import replace

from diagevo.equations.filter import verdict
from diagevo.equations.policy import built_in, next_epsilon, shares
from diagevo.equations.schedule import Share, reference, z
from diagevo.equations.settings import Filter, Settings
from diagevo.equations.states import (
    CauseState,
    Part,
    counted,
    part_in_schedule,
    provisional,
    reinstated,
    withdrawn,
)
from diagevo.errors import ConfigError
from diagevo.memory.events import (
    CauseDismissed,
    CauseReinstated,
    FailureAssigned,
    FailureUnassigned,
    number_of,
)
from diagevo.memory.read.opened_rounds import Judged, Observed, VoteKind

Status = Literal["exact", "open-loop"]


@dataclass(frozen=True, slots=True)
class Changes:
    """The changed settings. None means: as recorded."""

    k: Fraction | None = None
    theta_up: Fraction | None = None
    drop: frozenset[str] = frozenset()
    since: int = 1
    """The round from which on θ_up, and at whose commit k, are changed; before it they are as recorded."""

    def at(self, round: int, settings: Settings) -> Settings:
        """The settings at the commit of `round` under the changes."""
        if round < self.since:
            return settings
        changed = {name: v for name in ("k", "theta_up") if (v := getattr(self, name)) is not None}
        return msgspec.structs.replace(settings, **changed)


@dataclass(frozen=True, slots=True)
class WhatIfRound:
    """One round as it would have come out, beside the recorded one. `epsilon_next` is what the next round is
    drawn with: not the commit's where the run was configured anew in between."""

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
    shares: Mapping[str, Share]
    """p of the next round."""
    alike: bool
    """Whether the states and frequencies after the round are the recorded ones; ε is separate."""

    @property
    def differs(self) -> bool:
        return (self.failures, self.epsilon_next, self.active, self.mastered) != (
            self.recorded_failures,
            self.recorded_epsilon_next,
            self.recorded_active,
            self.recorded_mastered,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The rounds under the changes. `diverges`: the first round that would have drawn from another
    schedule."""

    changes: Changes
    rounds: tuple[WhatIfRound, ...]
    diverges: int | None


def what_if(observed: Sequence[Observed], changes: Changes) -> Answer:
    """Replay the recorded rounds under `changes`."""
    return next(what_ifs(observed, [changes]))


def what_ifs(observed: Sequence[Observed], several: Iterable[Changes]) -> Iterator[Answer]:
    """The answer to each of several changes, next to one replay of what was recorded."""
    as_recorded = list(_play(observed, Changes()))
    for changes in several:
        yield _answer(observed, as_recorded, changes)


def _answer(observed: Sequence[Observed], as_recorded: Sequence["_Played"], changes: Changes) -> Answer:
    changed = _play(observed, changes)
    rounds: list[WhatIfRound] = []
    diverges: int | None = None
    dropped = False
    for round_, base, new in zip(observed, as_recorded, changed, strict=True):
        dropped = dropped or not changes.drop.isdisjoint(round_.created)
        exact = diverges is None and not dropped
        rounds.append(
            WhatIfRound(
                round=round_.round,
                status="exact" if exact else "open-loop",
                failures=new.failures,
                reference_failures=new.reference,
                z=z(new.failures, new.reference),
                epsilon_next=new.epsilon,
                active=len(new.frequencies),
                mastered=len(new.mastered),
                promoted=new.promoted,
                reactivated=new.reactivated,
                recorded_failures=base.failures,
                recorded_epsilon_next=base.epsilon,
                recorded_active=len(base.frequencies),
                recorded_mastered=len(base.mastered),
                frequencies=new.frequencies,
                shares=new.shares,
                alike=(base.frequencies, base.mastered) == (new.frequencies, new.mastered),
            )
        )
        if diverges is None and not base.draws_like(new):
            diverges = round_.round + 1
    return Answer(changes, tuple(rounds), diverges)


@dataclass(frozen=True, slots=True)
class _Played:
    frequencies: dict[str, int]
    shares: dict[str, Share]
    mastered: frozenset[str]
    failures: int
    reference: int | None
    epsilon: Fraction
    """That the next round is drawn with."""
    promoted: tuple[str, ...]
    reactivated: tuple[str, ...]

    def draws_like(self, other: "_Played") -> bool:
        """Whether the next round is drawn from the same schedule: ε, p, and the partners to stitch."""
        return (self.epsilon, self.shares, self.mastered) == (other.epsilon, other.shares, other.mastered)


def _play(observed: Sequence[Observed], changes: Changes) -> Iterator[_Played]:
    """States (Equations 6 to 8), then the schedule (Equation 1), round after round."""
    causes: dict[str, tuple[CauseState, int]] = {}
    last_promotion: dict[str, int] = {}
    first: int | None = None
    for round_ in observed:
        settings = changes.at(round_.round, round_.configured.settings)
        promoted: list[str] = []
        reactivated: list[str] = []
        for cause, tally in round_.scores.items():
            if cause in causes and (now := provisional(*causes[cause], tally, settings)) != causes[cause]:
                causes[cause] = now
                promoted.append(cause)
                last_promotion[cause] = round_.round
        for cause in round_.created:
            if cause not in changes.drop:
                causes[cause] = "active", 0
        for cause, count in round_.failures.items():
            if cause in changes.drop:
                continue
            before, causes[cause] = causes[cause], counted(*causes[cause], count)
            if before[0] != causes[cause][0]:
                reactivated.append(cause)
        first = reference(first, sum(_of("target", causes).values()))
        for event in round_.judged:  # between the commit and the next round: F₁ stays
            if event.cause_id in causes:
                now = causes[event.cause_id]
                causes[event.cause_id] = _judge(now, event, last_promotion.get(event.cause_id))
        frequencies = _of("target", causes)
        failures = sum(frequencies.values())
        following = changes.at(round_.round, round_.following.settings)
        yield _Played(
            frequencies=frequencies,
            shares=shares(built_in(following), frequencies),
            mastered=frozenset(_of("partner", causes)),
            failures=failures,
            reference=first,
            epsilon=_epsilon(round_, following, frequencies, first),
            promoted=tuple(sorted(promoted, key=number_of)),
            reactivated=tuple(sorted(reactivated, key=number_of)),
        )


def _of(part: Part, causes: Mapping[str, tuple[CauseState, int]]) -> dict[str, int]:
    """The causes with this part in the schedule, and f of each."""
    return {cause: f for cause, (state, f) in causes.items() if part_in_schedule(state) == part}


def _judge(now: tuple[CauseState, int], event: Judged, promoted: int | None) -> tuple[CauseState, int]:
    """State and f of a cause after a change by hand; `promoted`: the round of its last promotion."""
    match event:
        case CauseDismissed():
            return "dismissed", now[1]
        case CauseReinstated():
            return reinstated(now[1], promoted is not None), now[1]
        case FailureAssigned() | FailureUnassigned():
            if promoted is not None and event.failure.round < promoted:
                return now
            if isinstance(event, FailureAssigned):
                return counted(*now, 1)
            return withdrawn(*now, promoted is not None) if now[1] else now


def _epsilon(
    round_: Observed, settings: Settings, frequencies: Mapping[str, int], first: int | None
) -> Fraction:
    """ε of the next round. A custom policy's recorded answer is kept: an audit runs no code."""
    ours = next_epsilon(settings, sum(frequencies.values()), first)
    if ours is not None:
        return ours
    return Fraction(round_.committed.epsilon_next)


def keeps(chosen: Filter, votes: VoteKind) -> bool:
    """Whether the filter keeps such questions."""
    if not votes.valid:
        return False
    if votes.rewards:  # the thresholds of Equation 3 did not decide
        return votes.verdict == "kept"
    return verdict(votes.first, votes.second, votes.responses, votes.labelled, chosen) == "kept"


@dataclass(frozen=True, slots=True)
class Retained:
    """A round's questions under a filter. `both`: kept then and now."""

    round: int
    candidates: int
    kept: int
    recorded: int
    both: int
    labels_known: int
    labels_true: int
    """Among the kept ones, in worlds that know the truth."""

    @property
    def share(self) -> Fraction | None:
        return Fraction(self.kept, self.candidates) if self.candidates else None

    @property
    def same(self) -> bool:
        return self.kept == self.recorded == self.both

    @property
    def label_truth(self) -> Fraction | None:
        return Fraction(self.labels_true, self.labels_known) if self.labels_known else None


def filters(observed: Sequence[Observed], changed: Mapping[str, Fraction]) -> list[Filter]:
    """The filter in force in each round, with the thresholds of `changed` in place of its own.

    A fork may have another filter than its origin. Raises ConfigError if p_low would be above p_high.
    """
    found = [replace(round_.configured.filter, **changed) for round_ in observed]
    for round_, one in zip(observed, found, strict=True):
        if one.p_low > one.p_high:
            raise ConfigError(
                f"p_low {one.p_low} is above p_high {one.p_high} in round {round_.round}",
                hint="change both: --p-low and --p-high",
            )
    return found


def retention(observed: Sequence[Observed], changed: Mapping[str, Fraction]) -> list[Retained]:
    """What each round would have kept with the thresholds of `changed`."""
    return [
        _retained(round_.round, round_.votes, chosen)
        for round_, chosen in zip(observed, filters(observed, changed), strict=True)
    ]


def _retained(number: int, votes: Counter[VoteKind], chosen: Filter) -> Retained:
    kept = {kind: count for kind, count in votes.items() if keeps(chosen, kind)}
    return Retained(
        round=number,
        candidates=votes.total(),
        kept=sum(kept.values()),
        recorded=sum(count for kind, count in votes.items() if kind.verdict == "kept"),
        both=sum(count for kind, count in kept.items() if kind.verdict == "kept"),
        labels_known=sum(count for kind, count in kept.items() if kind.label_true is not None),
        labels_true=sum(count for kind, count in kept.items() if kind.label_true),
    )


def first_changed(rounds: Sequence[Retained]) -> int | None:
    """The first round that would have kept other questions: from there on a rerun is needed."""
    return next((r.round for r in rounds if not r.same), None)
