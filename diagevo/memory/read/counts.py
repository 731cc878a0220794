"""What was asked and what failed, by round and by cause: of committed rounds from their rows, of the open one
from the fold, which counts both."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from diagevo.memory.events import number_of
from diagevo.memory.history import History
from diagevo.memory.read.asking import ask, row_of
from diagevo.memory.state.projection import cause_counts, round_counts


@dataclass(frozen=True, slots=True)
class RoundCounts:
    """`v_round`."""

    round: int
    candidates: int
    kept: int
    labels_judged: int
    labels_true: int
    observed: int
    with_cause: int
    questions_with_cause: int
    failures_judged: int
    against_false_labels: int
    right_against_false: int | None
    promoted_causes: tuple[str, ...]
    reactivated_causes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CauseCounts:
    """`v_cause_history`, where anything failed by the cause or aimed at it."""

    round: int
    cause_id: str
    failures: int
    questions: int
    aimed: int
    aimed_kept: int
    aimed_valid: int
    agreement: Fraction | None
    """Mean p₁ of the valid ones."""


@dataclass(frozen=True)
class Counts:
    """Of the rounds that count, the open one too."""

    rounds: tuple[RoundCounts, ...]
    causes: tuple[CauseCounts, ...]
    ingested: bool
    steered: bool
    """Whether prompts of another trainer were drawn by this memory."""

    @property
    def span(self) -> str:
        """ "round 1", "rounds 1 to 3"."""
        first, last = self.rounds[0].round, self.rounds[-1].round
        return f"round {first}" if first == last else f"rounds {first} to {last}"

    @cached_property
    def candidates(self) -> int:
        return sum(one.candidates for one in self.rounds)

    @cached_property
    def observed(self) -> int:
        return sum(one.observed for one in self.rounds)

    @cached_property
    def with_cause(self) -> int:
        return sum(one.with_cause for one in self.rounds)

    @cached_property
    def failures(self) -> dict[str, int]:
        """By cause, most first."""
        number = Counter[str]()
        for one in self.causes:
            number[one.cause_id] += one.failures
        most = sorted(number, key=lambda cause: (-number[cause], number_of(cause)))
        return {cause: number[cause] for cause in most if number[cause]}


def counts(history: History) -> Counts:
    """Of a run as it is now."""
    rounds = ask(history, "v_round", RoundCounts, "superseded_by IS NULL", order="round")
    some = "failures > 0 OR aimed > 0"
    causes = ask(history, "v_cause_history", CauseCounts, some, order="round, cause_id")
    now = history.state(history.end).open
    if now is not None:
        rounds.append(row_of(RoundCounts, {"round": now.number, **round_counts(now)}))
        for cause, row in cause_counts(now).items():
            causes.append(row_of(CauseCounts, {"round": now.number, "cause_id": cause, **row}))
    return Counts(tuple(rounds), tuple(causes), history.ingested is not None, history.steered)
