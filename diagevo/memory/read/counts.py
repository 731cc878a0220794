"""What was asked and what failed, by round and by cause: of committed rounds from their rows, of the open one
from the fold, which counts both."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from diagevo.memory.events import CauseState, number_of
from diagevo.memory.history import AsOf, History
from diagevo.memory.log.tables import CauseCounts, RoundCounts
from diagevo.memory.read.asking import select_rows
from diagevo.memory.state.projection import cause_counts, round_counts


@dataclass(frozen=True)
class Counts:
    """Of the rounds that count, the open one too."""

    rounds: tuple[RoundCounts, ...]
    causes: tuple[CauseCounts, ...]
    ingested: bool
    steered: bool
    """Whether prompts of another trainer were drawn by this memory."""
    dismissed: frozenset[str]
    """Causes whose failures `failures` and `with_cause` leave out."""

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
    def with_cause(self) -> dict[int, int]:
        """Failures that have a cause, by round."""
        left_out = Counter[int]()
        for one in self.causes:
            left_out[one.round] += one.failures if one.cause_id in self.dismissed else 0
        return {one.round: one.with_cause - left_out[one.round] for one in self.rounds}

    @cached_property
    def failures(self) -> dict[str, int]:
        """By cause, most first."""
        number = Counter[str]()
        for one in self.causes:
            number[one.cause_id] += 0 if one.cause_id in self.dismissed else one.failures
        most = sorted(number, key=lambda cause: (-number[cause], number_of(cause)))
        return {cause: number[cause] for cause in most if number[cause]}


def counted(history: History, as_of: AsOf) -> list[RoundCounts]:
    """The rounds that counted then, the open one too, in order."""
    then = "position <= :at AND (superseded_at IS NULL OR superseded_at > :at)"
    rounds = select_rows(history, "v_round", RoundCounts, then, {"at": as_of.position}, order="round")
    now = history.state(as_of).open
    return rounds if now is None else [*rounds, round_counts(now)]


def counts(history: History) -> Counts:
    """Of a run as it is now."""
    some = "failures > 0 OR aimed > 0"
    causes = select_rows(history, "v_cause_history", CauseCounts, some, order="round, cause_id")
    state = history.state(history.end)
    if state.open is not None:
        causes += cause_counts(state.open).values()
    rounds = counted(history, history.end)
    dismissed = frozenset(cause.cause_id for cause in state.dismissed())
    return Counts(tuple(rounds), tuple(causes), history.ingested is not None, history.steered, dismissed)


@dataclass(frozen=True, slots=True)
class RoundFailures:
    """What was counted under a cause in a round: `cause_question`, added up."""

    round: int
    failures: int
    questions: int


def failures_by_round(history: History, cause: str) -> list[RoundFailures]:
    """Of every round that counted some, in order; of those that count no more, too."""
    of_rounds = "SELECT run_id, round, sum(failures) AS failures, count(*) AS questions"
    of_rounds += " FROM cause_question WHERE cause_id = :cause GROUP BY run_id, round"
    return select_rows(
        history, f"({of_rounds}) counted", RoundFailures, values={"cause": cause}, order="round"
    )


COLUMNS = 24
"""Rounds beside each other: the last ones of a longer run."""


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """`v_cause_history`: a cause after the commit of a round."""

    cause_id: str
    round: int
    state: CauseState
    failures: int
    """In this round: f adds them up until a promotion closes it."""


@dataclass(frozen=True, slots=True)
class MatrixCause:
    """`v_cause`: a cause as it was last committed."""

    cause_id: str
    description: str
    node_id: str
    node: str
    state: CauseState
    frequency: int


@dataclass(frozen=True)
class CauseMatrix:
    """A part of the causes, those of a node together."""

    rounds: tuple[int, ...]
    left_out: int
    """Earlier rounds that are not shown."""
    rows: tuple[tuple[MatrixCause, tuple[MatrixCell | None, ...]], ...] = ()
    """A cell a shown round; None before the cause was created."""

    @cached_property
    def most(self) -> int:
        """The largest number of failures shown."""
        return max((cell.failures for _, cells in self.rows for cell in cells if cell), default=0)


def count_causes(history: History) -> int:
    """Causes as of the last commit."""
    return len(select_rows(history, "v_cause", MatrixCause))


def matrix(history: History, *, start: int = 0, most: int = 200) -> CauseMatrix:
    """Causes `start` to `start + most` in the order of their nodes, as committed, over the last rounds."""
    rounds = tuple(commit.round for commit in history.commits)
    shown = rounds[-COLUMNS:]
    order = "length(node_id), node_id, number"
    causes = select_rows(history, "v_cause", MatrixCause, order=order, limit=most, skip=start)
    cells: dict[str, dict[int, MatrixCell]] = {one.cause_id: {} for one in causes}
    for cell in select_rows(
        history, "v_cause_history", MatrixCell, "round >= :first", {"first": shown[0] if shown else 0}
    ):
        if cell.cause_id in cells:
            cells[cell.cause_id][cell.round] = cell
    rows = ((one, tuple(cells[one.cause_id].get(number) for number in shown)) for one in causes)
    return CauseMatrix(shown, len(rounds) - len(shown), tuple(rows))
