"""Causes by rounds: the state of each and what failed by it in each, a part of the causes at a time."""

from dataclasses import dataclass
from functools import cached_property

from diagevo.memory.events import CauseState
from diagevo.memory.history import History
from diagevo.memory.read.asking import ask

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
    return len(ask(history, "v_cause", MatrixCause))


def matrix(history: History, *, start: int = 0, most: int = 200) -> CauseMatrix:
    """Causes `start` to `start + most` in the order of their nodes, as committed, over the last rounds."""
    rounds = tuple(commit.round for commit in history.commits)
    shown = rounds[-COLUMNS:]
    order = "length(node_id), node_id, number"
    causes = ask(history, "v_cause", MatrixCause, order=order, limit=most, skip=start)
    cells: dict[str, dict[int, MatrixCell]] = {one.cause_id: {} for one in causes}
    for cell in ask(
        history, "v_cause_history", MatrixCell, "round >= :first", {"first": shown[0] if shown else 0}
    ):
        if cell.cause_id in cells:
            cells[cell.cause_id][cell.round] = cell
    rows = ((one, tuple(cells[one.cause_id].get(number) for number in shown)) for one in causes)
    return CauseMatrix(shown, len(rounds) - len(shown), tuple(rows))
