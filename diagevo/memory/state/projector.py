"""Projections kept in sync with their events, in the same transaction."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Executable, Table, bindparam, delete, insert, select, text, update

from diagevo.memory.events import (
    CauseCreated,
    CauseMatched,
    Event,
    FailureAssigned,
    FailureUnassigned,
    GroupIngested,
    RoundCommitted,
    RoundOpened,
    RoundsSuperseded,
    Trait,
    having,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.log.database import Database, insert_into
from diagevo.memory.log.tables import GROUP, MOVED, OPENED, PROMPT, QUESTION, SUM
from diagevo.memory.state import projection
from diagevo.memory.state.model import MemoryState, OpenRound, played_again
from diagevo.memory.state.projection import SUMS, group_row, moved_row, opened_row, question_row, sum_rows

PROJECTED = having(Trait.ROWS | Trait.STANDING)
"""Events that change a row of a projection."""
WAITING = 2000
"""Rows buffered before they are written: one statement for many, and a few MB at most."""

_ADD_GROUP = text(
    """INSERT INTO ingested_prompt AS p (run_id, question, position, steps, rollouts, passes, unanswered,
    first_step, first_rollouts, first_passes, last_step, last_rollouts, last_passes, explained)
VALUES (:run_id, :question, :position, 1, :rollouts, :passes, :unanswered,
    :step, :rollouts, :passes, :step, :rollouts, :passes, 0)
ON CONFLICT (run_id, question) DO UPDATE SET
    steps = p.steps + CASE WHEN excluded.first_step < p.first_step OR excluded.last_step > p.last_step THEN 1
        WHEN excluded.first_step IN (p.first_step, p.last_step) THEN 0
        WHEN EXISTS (SELECT 1 FROM ingested_group g WHERE g.run_id = p.run_id AND g.question = p.question
            AND g.step = excluded.first_step AND g.position < excluded.position) THEN 0 ELSE 1 END,
    rollouts = p.rollouts + excluded.rollouts,
    passes = p.passes + excluded.passes,
    unanswered = p.unanswered + excluded.unanswered,
    first_rollouts = CASE WHEN excluded.first_step < p.first_step THEN excluded.rollouts
        WHEN excluded.first_step = p.first_step THEN p.first_rollouts + excluded.rollouts
        ELSE p.first_rollouts END,
    first_passes = CASE WHEN excluded.first_step < p.first_step THEN excluded.passes
        WHEN excluded.first_step = p.first_step THEN p.first_passes + excluded.passes ELSE p.first_passes END,
    first_step = CASE WHEN excluded.first_step < p.first_step THEN excluded.first_step
        ELSE p.first_step END,
    last_rollouts = CASE WHEN excluded.last_step > p.last_step THEN excluded.rollouts
        WHEN excluded.last_step = p.last_step THEN p.last_rollouts + excluded.rollouts
        ELSE p.last_rollouts END,
    last_passes = CASE WHEN excluded.last_step > p.last_step THEN excluded.passes
        WHEN excluded.last_step = p.last_step THEN p.last_passes + excluded.passes ELSE p.last_passes END,
    last_step = CASE WHEN excluded.last_step > p.last_step THEN excluded.last_step
        ELSE p.last_step END"""
)
"""A group added to its prompt. Between the first and the last step, the groups tell which steps are new."""
_EXPLAIN = text(
    """UPDATE ingested_prompt SET explained = explained + :failures
WHERE run_id = :run_id AND question = :question"""
)
_EXPLAIN_NONE = update(PROMPT).where(PROMPT.c.run_id == bindparam("run")).values(explained=0)
_EXPLAIN_ALL = text(
    """UPDATE ingested_prompt SET explained = counted.failures
FROM (SELECT question, sum(failures) AS failures FROM (SELECT q.question, q.failures
        FROM cause_question q JOIN opened_round o ON o.run_id = q.run_id AND o.round = q.round
        AND o.superseded_by IS NULL
        JOIN (SELECT DISTINCT batch, question FROM ingested_group WHERE run_id = :run) asked  -- no vote
        ON asked.batch = o.batch AND asked.question = q.question WHERE q.run_id = :run
        UNION ALL SELECT question, failures FROM moved_failure WHERE run_id = :run) added
    GROUP BY question) counted
WHERE ingested_prompt.run_id = :run AND ingested_prompt.question = counted.question"""
)


def _explain_all(connection: Connection, run_id: str) -> None:
    connection.execute(_EXPLAIN_NONE, {"run": run_id})
    connection.execute(_EXPLAIN_ALL, {"run": run_id})


class Projector:
    """Keeps the rows of a run in sync with its events, within the caller's write transactions.

    `take` comes after the fold of an event of `PROJECTED`. Rows that come by the thousand are buffered:
    `flush` ends a transaction.
    """

    def __init__(self, database: Database, run_id: str) -> None:
        self._database, self._run_id = database, run_id
        self._groups: list[dict[str, Any]] = []
        self._questions: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._explained: Counter[str] = Counter()
        self._moved: list[dict[str, Any]] = []
        self._standing: MemoryState | None = None
        """The state whose causes and nodes are to be written: once for thousands of assigned failures."""

    def take(self, fact: Fact[Event], state: MemoryState, before: OpenRound | None, at: str) -> None:
        """Apply an event.

        Args:
            fact: The event.
            state: The memory after it.
            before: The round that was open before it.
            at: When a commit is recorded.
        """
        match fact.event:
            case GroupIngested() as group:
                self._groups.append(group_row(self._run_id, fact.position, fact.round, group))
            case (
                CauseCreated(cause_id=cause, failure_id=name) | CauseMatched(cause_id=cause, failure_id=name)
            ):
                assert before is not None
                row = question_row(self._run_id, before, name.rpartition(".")[0], cause)
                known = self._questions.setdefault((row["round"], row["question_id"], cause), row)
                # The first failure is in the row that is made; each further one adds itself.
                known["failures"] += known is not row
                if before.candidates[row["question_id"]].votes_are == "rewards":
                    self._explained[row["question"]] += 1
            case FailureAssigned() | FailureUnassigned() as moved:
                row, on = moved_row(self._run_id, fact.position, moved)
                self._questions.setdefault((on["round"], on["question_id"], moved.cause_id), on)
                self._explained[row["question"]] += row["failures"]
                self._moved.append(row)
                self._standing = state
            case RoundOpened():
                if self._standing is not None:
                    self.flush()  # before the round changes them
                with self._database.write() as connection:
                    connection.execute(insert(OPENED), opened_row(state, fact.round, fact.position))
            case RoundCommitted():
                assert before is not None
                with self._database.write() as connection:
                    projection.write(connection, state, before, at)
            case RoundsSuperseded():
                self.flush()  # superseded failures no longer explain anything
                with self._database.write() as connection:
                    projection.write_memory(connection, state)
                    _supersede(connection, state, fact.position)
            case _:  # the causes and nodes as they stand
                with self._database.write() as connection:
                    projection.write_memory(connection, state)
        if len(self._groups) + len(self._questions) >= WAITING:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        groups, questions = self._groups, list(self._questions.values())
        explained = list(self._explained.items())
        moved, standing = self._moved, self._standing
        self._groups, self._questions, self._explained = [], {}, Counter()
        self._moved, self._standing = [], None
        if not groups and not questions:
            return
        with self._database.write() as connection:
            if moved:
                connection.execute(insert(MOVED), moved)
            if standing is not None:
                projection.write_memory(connection, standing)
            # An attempt of the training replaces steps of the one before, so that each is written by
            # itself, in order.
            for attempt, of in groupby(groups, key=lambda row: row["attempt"]):
                rows = list(of)
                self._void(connection, attempt, rows[0]["step"])
                connection.execute(insert(GROUP), rows)
                self._add(connection, SUM, sum_rows(rows), SUMS)
                connection.execute(_ADD_GROUP, [row | {"unanswered": _unanswered(row)} for row in rows])
            if questions:
                self._add(connection, QUESTION, questions, ["failures"])
            if explained:
                connection.execute(
                    _EXPLAIN, [{"run_id": self._run_id, "question": q, "failures": n} for q, n in explained]
                )

    def _add(
        self, connection: Connection, target: Table, rows: list[dict[str, Any]], sums: Sequence[str]
    ) -> None:
        """Rows, added to those of the same key."""
        connection.execute(_adding(self._database.dialect, target, tuple(sums)), rows)

    def _void(self, connection: Connection, attempt: int, step: int) -> None:
        """When a training attempt begins, earlier attempts' groups from its first step on are removed."""
        if attempt == 1:
            return
        own = GROUP.c.run_id == self._run_id
        # Once an attempt: its first group voids, the others find its own rows there.
        last = select(GROUP.c.attempt).where(own).order_by(GROUP.c.position.desc()).limit(1)
        if (connection.execute(last).scalar() or 1) >= attempt:
            return
        connection.execute(delete(GROUP).where(own, GROUP.c.attempt < attempt, GROUP.c.step >= step))
        connection.execute(delete(SUM).where(SUM.c.run_id == self._run_id, SUM.c.step >= step))
        # First and last step of a prompt cannot be subtracted from: its rows are added up anew from what
        # stays.
        connection.execute(delete(PROMPT).where(PROMPT.c.run_id == self._run_id))
        rows = connection.execute(select(GROUP).where(own).order_by(GROUP.c.position)).mappings().all()
        for start in range(0, len(rows), WAITING):
            part = rows[start : start + WAITING]
            connection.execute(_ADD_GROUP, [{**row, "unanswered": _unanswered(row)} for row in part])
        _explain_all(connection, self._run_id)


@cache  # making it takes longer than running it, and each failure that is counted runs it
def _adding(dialect: str, target: Table, sums: Sequence[str]) -> Executable:
    adding = insert_into(dialect, target)
    more = {name: target.c[name] + adding.excluded[name] for name in sums}
    return adding.on_conflict_do_update(index_elements=list(target.primary_key), set_=more)


def _supersede(connection: Connection, state: MemoryState, position: int) -> None:
    """Mark the rounds that the last superseding removed."""
    again, (first, last) = played_again(state.superseded), state.superseded[-1]
    counted = select(OPENED.c.round).where(
        OPENED.c.run_id == state.run_id, OPENED.c.round.between(first, last), OPENED.c.superseded_by.is_(None)
    )
    began = select(OPENED.c.position).where(OPENED.c.run_id == state.run_id, OPENED.c.round == first)
    undone = delete(MOVED).where(MOVED.c.run_id == state.run_id)  # later assignments are no longer in f
    connection.execute(undone.where(MOVED.c.position > began.scalar_subquery()))
    for number in connection.execute(counted).scalars().all():
        gone = update(OPENED).where(OPENED.c.run_id == state.run_id, OPENED.c.round == number)
        connection.execute(gone.values(superseded_by=again[number], superseded_at=position))
    _explain_all(connection, state.run_id)


def _unanswered(group: Any) -> int:
    return 0 if group["passes"] else group["rollouts"]
