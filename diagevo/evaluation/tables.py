"""The SQL rows of evaluations and of the oracle's answers. They stand beside the log and are no part of it:
a measurement changes no memory."""

from sqlalchemy import ForeignKeyConstraint, Index, PrimaryKeyConstraint
from sqlmodel import Field, SQLModel

from diagevo.memory.log.tables import ForeignText, RealOrNone, Str, StrOrNone


class EvaluationRow(SQLModel, table=True):
    """One measurement: a model on a benchmark under exact conditions, which its id is a digest of."""

    __tablename__ = "evaluation"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        PrimaryKeyConstraint("evaluation_id"),
        Index("ix_evaluation_run_round", "run_id", "round"),
    )
    evaluation_id: Str
    run_id: StrOrNone = None
    """The run whose checkpoint was measured; null for a model of no run."""
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
    """One question of an evaluation. Lists hold an entry a sample, as JSON."""

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
    """What the judge said of each response that the rule refused: true, false, or null where not asked.
    Null as a whole until the question is settled."""
    judge: str | None = Field(default=None, sa_type=ForeignText)
    correct: str | None = Field(default=None, sa_type=ForeignText)
    score: RealOrNone = None
    """The share of correct responses; null until the question is settled."""


class OracleRow(SQLModel, table=True):
    """A self-play question with the answer that a model proposed and a human confirmed or corrected."""

    __tablename__ = "oracle"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "round", "question_id"),)
    run_id: Str
    round: int
    question_id: Str
    question: str = Field(sa_type=ForeignText)
    label: str = Field(sa_type=ForeignText)
    """The pseudo-label, which the checker is not shown."""
    proposed: str | None = Field(default=None, sa_type=ForeignText)
    votes: str | None = Field(default=None, sa_type=ForeignText)
    """How many of the proposer's responses agreed, as in "13/16"."""
    proposer: str | None = Field(default=None, sa_type=ForeignText)
    answer: str | None = Field(default=None, sa_type=ForeignText)
    """The reference answer after checking; null until checked. An empty one: the question has no answer."""
    source: str | None = Field(default=None, sa_type=ForeignText)
    """human, or the world that computes the truth."""
    note: str | None = Field(default=None, sa_type=ForeignText)
