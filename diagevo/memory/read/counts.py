"""Questions and failures by round and by cause: committed rounds from their rows, the open one from the fold,
which counts both."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from diagevo.memory.events import CauseState, number_of
from diagevo.memory.history import AsOf, History
from diagevo.memory.log.tables import CauseCounts, RoundCounts
from diagevo.memory.read.asking import select_rows
from diagevo.memory.state.projection import cause_counts, round_counts


@dataclass(frozen=True)
class Counts:
    """Counts of the rounds that count, including the open one."""

    rounds: tuple[RoundCounts, ...]
    causes: tuple[CauseCounts, ...]
    ingested: bool
    steered: bool
    """Whether this memory drew another trainer's prompts."""
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
        """By cause, most frequent first."""
        number = Counter[str]()
        for one in self.causes:
            number[one.cause_id] += 0 if one.cause_id in self.dismissed else one.failures
        most = sorted(number, key=lambda cause: (-number[cause], number_of(cause)))
        return {cause: number[cause] for cause in most if number[cause]}


def counted(history: History, as_of: AsOf) -> list[RoundCounts]:
    """The rounds that counted then, including the open one, in order."""
    then = "position <= :at AND (superseded_at IS NULL OR superseded_at > :at)"
    rounds = select_rows(history, "v_round", RoundCounts, then, {"at": as_of.position}, order="round")
    now = history.state(as_of).open
    return rounds if now is None else [*rounds, round_counts(now)]


def counts(history: History) -> Counts:
    """Of a run as it is now."""
    some = "failures > 0 OR aimed > 0"
    causes = select_rows(history, "v_cause_history", CauseCounts, some, order="round, cause_id")
    rounds = counted(history, history.end)
    state = history.state(history.end)
    if state.assignments:
        causes = _assigned_anew(history, causes, rounds, state.round)
    if state.open is not None:
        causes += cause_counts(state.open).values()
    dismissed = frozenset(cause.cause_id for cause in state.left_out())
    return Counts(tuple(rounds), tuple(causes), history.ingested is not None, history.steered, dismissed)


@dataclass(frozen=True, slots=True)
class RoundFailures:
    """A round's failures under a cause: `cause_question` plus later assignments."""

    round: int
    failures: int
    questions: int


def failures_by_round(history: History, cause: str) -> list[RoundFailures]:
    """Every round that counted some, in order, including superseded ones."""
    of_rounds = """(SELECT q.run_id, q.round, count(*) AS questions,
        CAST(sum(q.failures + COALESCE(m.moved, 0)) AS INTEGER) AS failures
        FROM cause_question q LEFT JOIN (SELECT run_id, round, question_id, cause_id, sum(failures) AS moved
            FROM moved_failure GROUP BY run_id, round, question_id, cause_id) m
            ON m.run_id = q.run_id AND m.round = q.round AND m.question_id = q.question_id
            AND m.cause_id = q.cause_id
        WHERE q.cause_id = :cause AND q.failures + COALESCE(m.moved, 0) > 0
        GROUP BY q.run_id, q.round) counted"""
    return select_rows(history, of_rounds, RoundFailures, values={"cause": cause}, order="round")


@dataclass(frozen=True, slots=True)
class _OnQuestion:
    """`v_cause_question`."""

    round: int
    question_id: str
    cause_id: str
    responses: int
    first: int
    failures: int


def _assigned_anew(
    history: History, causes: list[CauseCounts], rounds: list[RoundCounts], last: int
) -> list[CauseCounts]:
    """The counts of committed rounds, with later assignments of failures applied."""
    now = {(one.round, one.cause_id): one for one in causes}
    for one in causes:
        one.failures = one.questions = one.responses = one.first = 0
    on = defaultdict[int, set[str]](set)
    failures = Counter[int]()
    for row in select_rows(history, "v_cause_question", _OnQuestion, "round <= :last", {"last": last}):
        key = row.round, row.cause_id
        cause = now.setdefault(key, CauseCounts(round=row.round, cause_id=row.cause_id))
        cause.failures += row.failures
        cause.questions += 1
        cause.responses += row.responses
        cause.first += row.first
        on[row.round].add(row.question_id)
        failures[row.round] += row.failures
    for one in rounds:
        if one.round <= last:
            one.with_cause, one.questions_with_cause = failures[one.round], len(on[one.round])
    return [now[key] for key in sorted(now)]


COLUMNS = 24
"""Maximum rounds side by side: the last ones of a longer run."""


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
    """Some of the causes, grouped by node."""

    rounds: tuple[int, ...]
    left_out: int
    """Earlier rounds that are not shown."""
    rows: tuple[tuple[MatrixCause, tuple[MatrixCell | None, ...]], ...] = ()
    """One cell per shown round; None before the cause was created."""

    @cached_property
    def most(self) -> int:
        """The largest number of failures shown."""
        return max((cell.failures for _, cells in self.rows for cell in cells if cell), default=0)


def count_causes(history: History) -> int:
    """Causes as of the last commit."""
    return len(select_rows(history, "v_cause", MatrixCause))


def _as_assigned(history: History, cells: dict[str, dict[int, MatrixCell]], shown: Sequence[int]) -> None:
    """Each failure in the cell of the cause that it was assigned to later: its round may precede the
    cause."""
    now = Counter[tuple[str, int]]()
    first = {"first": shown[0] if shown else 0}
    for row in select_rows(history, "v_cause_question", _OnQuestion, "round >= :first", first):
        now[row.cause_id, row.round] += row.failures
    for cause_id, of in cells.items():
        for number in shown:
            if (cell := of.get(number)) is not None:
                of[number] = replace(cell, failures=now[cause_id, number])
            elif now[cause_id, number]:
                of[number] = MatrixCell(cause_id, number, "active", now[cause_id, number])


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
    if history.state(history.end).assignments:
        _as_assigned(history, cells, shown)
    rows = ((one, tuple(cells[one.cause_id].get(number) for number in shown)) for one in causes)
    return CauseMatrix(shown, len(rounds) - len(shown), tuple(rows))
