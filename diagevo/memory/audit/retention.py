"""Which recorded questions would have been kept under another filter (Equation 3), from their votes alone:
exact for the recorded questions. A run with that filter would have written others after the first round whose
kept questions differ.

Promotions do not depend on the filter (P_t(e) holds removed questions too), but the solver's training does:
what a changed filter does to failures, states and ε cannot be read from the log and needs a rerun from the
first round whose kept questions would have been others.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from operator import itemgetter

from msgspec.structs import replace

from diagevo.equations.filter import verdict
from diagevo.equations.settings import Filter
from diagevo.errors import ConfigError
from diagevo.memory.audit.timeline.rounds import Observed, VoteKind


def keeps(chosen: Filter, votes: VoteKind) -> bool:
    """Whether the filter keeps such questions."""
    if not votes.valid:
        return False
    if votes.rewards:  # no threshold of Equation 3 decided
        return votes.verdict == "kept"
    return verdict(votes.first, votes.second, votes.responses, votes.labelled, chosen) == "kept"


def by_round(rounds: Sequence[int], words: Sequence[str]) -> str:
    """The words alone where they hold in every round, else each with its rounds."""
    groups = [
        (word, [n for n, _ in of]) for word, of in groupby(zip(rounds, words, strict=True), itemgetter(1))
    ]
    if len(groups) == 1:
        return groups[0][0]
    return ", ".join(f"{word} in {span(of)}" for word, of in groups)


def span(rounds: Sequence[int]) -> str:
    """round 3, or rounds 1 to 3."""
    first, last = rounds[0], rounds[-1]
    return f"round {first}" if first == last else f"rounds {first} to {last}"


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
    """Of the kept ones, in worlds that know the truth."""

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

    A fork may have another filter than its origin. Raises ConfigError where p_low comes out above p_high.
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
    """What each round would have kept, had its filter had the thresholds of `changed`."""
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
    """The first round whose kept questions would have been others: from there on a rerun is needed."""
    return next((r.round for r in rounds if not r.same), None)
