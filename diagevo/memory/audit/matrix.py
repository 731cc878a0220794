"""Causes by rounds: the state of each and what failed by it in each, a part of the causes at a time."""

from dataclasses import dataclass, field
from functools import cached_property

from sqlalchemy import func, select

from diagevo.memory.audit.timeline.causes import lives
from diagevo.memory.events import CauseState
from diagevo.memory.history import History
from diagevo.memory.state.projection import CAUSE, HISTORY, NODE

COLUMNS = 24
"""Rounds beside each other: the last ones of a longer run."""


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """A cause after the commit of a round."""

    round: int
    state: CauseState
    failures: int
    """In this round: f adds them up until a promotion closes it."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A cause as it was last committed, with a cell a shown round; None before it was created."""

    id: str
    description: str
    node: str
    node_label: str
    state: CauseState
    frequency: int
    cells: tuple[MatrixCell | None, ...]


@dataclass(frozen=True)
class CauseMatrix:
    """A part of the causes, those of a node together."""

    rounds: tuple[int, ...]
    left_out: int
    """Earlier rounds that are not shown."""
    rows: tuple[MatrixRow, ...] = field(default=())

    @cached_property
    def most(self) -> int:
        """The largest number of failures shown."""
        return max((cell.failures for row in self.rows for cell in row.cells if cell), default=0)


def count_causes(history: History) -> int:
    """Causes as of the last commit."""
    query = select(func.count()).select_from(CAUSE).where(CAUSE.c.run_id == history.run_id)
    with history.database.read() as connection:
        return connection.execute(query).scalar_one()


def matrix(history: History, *, start: int = 0, most: int = 200) -> CauseMatrix:
    """Causes `start` to `start + most` in the order of their nodes, as committed, over the last rounds."""
    run = history.run_id
    rounds = tuple(commit.round for commit in history.commits)
    shown = rounds[-COLUMNS:]
    node = (NODE.c.run_id == CAUSE.c.run_id) & (NODE.c.node_id == CAUSE.c.node_id)
    chosen = (
        select(CAUSE, NODE.c.label.label("node_label"))
        .select_from(CAUSE.join(NODE, node))
        .where(CAUSE.c.run_id == run)
        .order_by(NODE.c.number, CAUSE.c.number)
        .offset(start)
        .limit(most)
    )
    with history.database.read() as connection:
        causes = connection.execute(chosen).all()
        wanted = [row.cause_id for row in causes]
        of_round = connection.execute(
            select(HISTORY.c.round, HISTORY.c.cause_id, HISTORY.c.state, HISTORY.c.frequency).where(
                HISTORY.c.run_id == run,
                HISTORY.c.cause_id.in_(wanted),
                HISTORY.c.round.in_(rounds[-COLUMNS - 1 :]),
            )
        ).all()
    promoted = {cause_id: set(life.promoted) for cause_id, life in lives(history, history.end).items()}
    before: dict[str, int] = {}
    cells: dict[str, dict[int, MatrixCell]] = {}
    for number, cause_id, state, frequency in sorted(of_round, key=lambda row: row.round):
        was = 0 if number in promoted[cause_id] else before.get(cause_id, 0)
        cells.setdefault(cause_id, {})[number] = MatrixCell(number, state, frequency - was)
        before[cause_id] = frequency
    return CauseMatrix(
        shown,
        len(rounds) - len(shown),
        tuple(
            MatrixRow(
                id=row.cause_id,
                description=row.description,
                node=row.node_id,
                node_label=row.node_label,
                state=row.state,
                frequency=row.frequency,
                cells=tuple(cells.get(row.cause_id, {}).get(number) for number in shown),
            )
            for row in causes
        ),
    )
