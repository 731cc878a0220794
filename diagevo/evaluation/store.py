"""Evaluations in the database: one row per measurement, one row per question. Questions and answers are
stored verbatim, so that an interrupted evaluation can continue and a finished one can be read again. The rows
are beside the log and not part of it: a measurement changes no memory."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ForeignKeyConstraint,
    Index,
    PrimaryKeyConstraint,
    Text,
    TypeDecorator,
    func,
    insert,
    select,
    update,
)
from sqlmodel import Field, SQLModel

from diagevo.errors import ConfigError, DamagedError, NotFoundError
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import now
from diagevo.memory.log.tables import RealOrNone, Str, StrOrNone, table
from diagevo.text.escaping import storable, utf8


class ForeignText(TypeDecorator[str]):
    """A foreign text outside the log, stored in a form that both databases accept (`escaping.storable`)."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: object) -> str | None:
        return None if value is None else storable(value)


class EvaluationRow(SQLModel, table=True):
    """One measurement: a model on a benchmark under exact conditions, whose digest is its id."""

    __tablename__ = "evaluation"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        PrimaryKeyConstraint("evaluation_id"),
        Index("ix_evaluation_run_round", "run_id", "round"),
    )
    evaluation_id: Str
    run_id: StrOrNone = None
    """The run whose checkpoint was measured; null for a model without a run."""
    round: int | None = None
    benchmark: str = Field(sa_type=ForeignText)
    model: str = Field(sa_type=ForeignText)
    conditions: str = Field(sa_type=ForeignText)
    """Canonical JSON."""
    questions: int
    metrics: str | None = Field(default=None, sa_type=ForeignText)
    """JSON, once every question is answered and judged."""
    began_at: Str
    finished_at: StrOrNone = None


class EvaluationResultRow(SQLModel, table=True):
    """One question of an evaluation. Lists have one entry per sample, as JSON."""

    __tablename__ = "evaluation_result"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        PrimaryKeyConstraint("evaluation_id", "question"),
        ForeignKeyConstraint(["evaluation_id"], ["evaluation.evaluation_id"]),
    )
    evaluation_id: Str
    question: int
    """Its number in the benchmark's order, from 0."""
    category: str | None = Field(default=None, sa_type=ForeignText)
    kind: str = Field(sa_type=ForeignText)
    prompt: str = Field(sa_type=ForeignText)
    """The messages as JSON."""
    reference: str = Field(sa_type=ForeignText)
    responses: str = Field(sa_type=ForeignText)
    truncated: str = Field(sa_type=ForeignText)
    extracted: str = Field(sa_type=ForeignText)
    by_rule: str = Field(sa_type=ForeignText)
    judged: str | None = Field(default=None, sa_type=ForeignText)
    """The judge's verdict on each response that the rule rejected: true, false, or null where not asked.
    Null as a whole until the question is settled."""
    judge: str | None = Field(default=None, sa_type=ForeignText)
    correct: str | None = Field(default=None, sa_type=ForeignText)
    score: RealOrNone = None
    """The share of correct responses; null until the question is settled."""


EVALUATION = table(EvaluationRow)
RESULT = table(EvaluationResultRow)


@dataclass(frozen=True, slots=True)
class Answered:
    """One question as asked and answered: lists have one entry per sample. `judged` is null until settled."""

    question: int
    category: str | None
    kind: str
    prompt: list[dict[str, str]]
    reference: str
    responses: list[str]
    truncated: list[bool]
    extracted: list[str | None]
    by_rule: list[bool]
    judged: list[bool | None] | None = None
    judge: str | None = None
    correct: list[bool] | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A measurement and, once it is finished, its figures."""

    evaluation_id: str
    run_id: str | None
    round: int | None
    benchmark: str
    model: str
    conditions: dict[str, Any]
    questions: int
    answered: int
    metrics: dict[str, float] | None
    began_at: str
    finished_at: str | None


def canonical(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def evaluation_id(conditions: Mapping[str, Any]) -> str:
    """The same measurement under the same conditions has the same id, so that repeating it continues."""
    return "e" + hashlib.sha256(utf8(canonical(conditions))).hexdigest()[:11]


_LISTS = ("prompt", "responses", "truncated", "extracted", "by_rule", "judged", "correct")


def _row_of(answered: Answered) -> dict[str, Any]:
    row = {name: getattr(answered, name) for name in Answered.__dataclass_fields__}
    for name in _LISTS:
        row[name] = None if row[name] is None else json.dumps(row[name], ensure_ascii=False)
    return row


def _decoded(text: Any, what: str) -> Any:
    """The stored JSON value, or None. Raises DamagedError."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, TypeError) as error:
        raise DamagedError(f"{what} cannot be read: {error}") from error


def _answered_of(row: Any) -> Answered:
    values = {name: getattr(row, name) for name in Answered.__dataclass_fields__}
    for name in _LISTS:
        values[name] = _decoded(values[name], f"{name} of an answer")
    return Answered(**values)


class EvaluationStore:
    """Reads and writes evaluations. Every write is a separate transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def begin(self, conditions: Mapping[str, Any]) -> str:
        """The id of the measurement under these conditions; creates its row if there is none yet."""
        key = evaluation_id(conditions)
        with self.database.write() as connection:
            known = connection.execute(select(EVALUATION).where(EVALUATION.c.evaluation_id == key)).first()
            if known is None:
                named = {name: conditions[name] for name in ("benchmark", "model", "questions", "round")}
                row = {"evaluation_id": key, "run_id": conditions["run"], **named}
                row |= {"conditions": canonical(conditions), "began_at": now()}
                connection.execute(insert(EVALUATION), row)
        return key

    def answered(self, key: str) -> set[int]:
        """Numbers of the answered questions."""
        query = select(RESULT.c.question).where(RESULT.c.evaluation_id == key)
        with self.database.read() as connection:
            return set(connection.execute(query).scalars())

    def save(self, key: str, results: Sequence[Answered]) -> None:
        """Keep a batch of answered questions, all or none."""
        rows = [{"evaluation_id": key, **_row_of(result)} for result in results]
        with self.database.write() as connection:
            connection.execute(insert(RESULT), rows)

    def unsettled(self, key: str) -> list[Answered]:
        """Answered questions that wait for the judge, in order."""
        return self._results(key, RESULT.c.correct.is_(None))

    def settle(self, key: str, results: Sequence[Answered]) -> None:
        with self.database.write() as connection:
            for result in results:
                row = _row_of(result)
                values = {name: row[name] for name in ("judged", "judge", "correct", "score")}
                connection.execute(
                    update(RESULT)
                    .where(RESULT.c.evaluation_id == key, RESULT.c.question == result.question)
                    .values(values)
                )

    def results(self, key: str) -> list[Answered]:
        """Every answered question, in order."""
        return self._results(key)

    def _results(self, key: str, *conditions: Any) -> list[Answered]:
        query = select(RESULT).where(RESULT.c.evaluation_id == key, *conditions).order_by(RESULT.c.question)
        with self.database.read() as connection:
            return [_answered_of(row) for row in connection.execute(query)]

    def scores(self, key: str) -> dict[int, float]:
        """Score by question number, for settled questions."""
        query = select(RESULT.c.question, RESULT.c.score).where(
            RESULT.c.evaluation_id == key, RESULT.c.score.is_not(None)
        )
        with self.database.read() as connection:
            return {row.question: row.score for row in connection.execute(query)}

    def finish(self, key: str, metrics: Mapping[str, float]) -> None:
        with self.database.write() as connection:
            connection.execute(
                update(EVALUATION)
                .where(EVALUATION.c.evaluation_id == key)
                .values(metrics=canonical(metrics), finished_at=now())
            )

    def list(self, run_id: str | None = None) -> list[Evaluation]:
        """Every evaluation, or those of a run, in the order they were begun."""
        counted = (
            select(RESULT.c.evaluation_id, func.count().label("answered"))
            .group_by(RESULT.c.evaluation_id)
            .subquery()
        )
        query = (
            select(EVALUATION, func.coalesce(counted.c.answered, 0).label("answered"))
            .outerjoin(counted, counted.c.evaluation_id == EVALUATION.c.evaluation_id)
            .order_by(EVALUATION.c.began_at, EVALUATION.c.evaluation_id)
        )
        if run_id is not None:
            query = query.where(EVALUATION.c.run_id == run_id)
        with self.database.read() as connection:
            return [_evaluation_of(row) for row in connection.execute(query)]

    def find(self, reference: str) -> Evaluation:
        """An evaluation by its id or the beginning of it. Raises NotFoundError, ConfigError if ambiguous."""
        found = [e for e in self.list() if e.evaluation_id.startswith(reference)]
        if not found:
            raise NotFoundError(f"there is no evaluation {reference}", hint="list them: diagevo eval show")
        if len(found) > 1:
            ids = ", ".join(e.evaluation_id for e in found)
            raise ConfigError(f"{reference} could be {ids}", hint="give more of the id")
        return found[0]


def _evaluation_of(row: Any) -> Evaluation:
    values = {name: getattr(row, name) for name in Evaluation.__dataclass_fields__}
    for name in ("conditions", "metrics"):
        values[name] = _decoded(values[name], f"the {name} of evaluation {row.evaluation_id}")
    return Evaluation(**values)
