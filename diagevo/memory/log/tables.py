"""The SQL rows, as SQLModel tables. Reads and writes go through SQLAlchemy Core on their `__table__`.

`event` is the log and the only truth; `artifact`, `reply` and `vector` hold what events name by digest.
`cause`, `skill_node`, `round_summary`, `cause_history` and `snapshot` are projections, written at each
commit and made again by `memory rebuild`. `log` and `run` hold the heads under which positions and
sequences are given.
"""

from typing import cast

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlmodel import Field, SQLModel

from diagevo.texts import storable

_Long = BigInteger().with_variant(Integer, "sqlite")
"""64 bits on every database; on SQLite only INTEGER is an alias of the row id."""


class ForeignString(TypeDecorator[str]):
    """A text that somebody else wrote, outside the log: kept as both databases can (`texts.storable`)."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: object) -> str | None:
        return None if value is None else storable(value)


class ForeignText(ForeignString):
    """The same in a column that was made as TEXT."""

    impl = Text
    cache_ok = True


class LogRow(SQLModel, table=True):
    """One row: the last position given. Writers lock it."""

    __tablename__ = "log"  # pyright: ignore[reportAssignmentType]  (SQLModel types it as a declared_attr)
    id: int = Field(primary_key=True)
    position: int = Field(sa_type=BigInteger)


class RunRow(SQLModel, table=True):
    """A run: the head of its chain."""

    __tablename__ = "run"  # pyright: ignore[reportAssignmentType]
    run_id: str = Field(primary_key=True)
    sequence: int = Field(sa_type=BigInteger)
    hash: str
    created_at: str
    imported: str | None = None
    """Of a run that came from outside: the head of its bundle. Its endpoints are somebody else's word."""
    imported_run: str | None = Field(default=None, sa_type=ForeignString)
    """Which run it was in the bundle."""


class EventRow(SQLModel, table=True):
    """The log. Append-only by triggers: no migration may batch-alter it (a copied table loses its
    triggers)."""

    __tablename__ = "event"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        UniqueConstraint("event_id", name="uq_event_event_id"),
        UniqueConstraint("run_id", "sequence", name="uq_event_run_sequence"),
        Index("ix_event_run_type_round", "run_id", "type", "round"),
        # These two leave nulls out: the migration says so; said here it would import both dialects.
        Index("ix_event_run_cause", "run_id", "cause_id"),
        Index("ix_event_causation", "causation_id"),
    )
    position: int = Field(sa_column=Column(_Long, primary_key=True, autoincrement=False))
    event_id: str
    run_id: str
    sequence: int = Field(sa_type=BigInteger)
    round: int
    type: str
    schema_version: int
    cause_id: str | None = None
    payload: str = Field(sa_type=Text)
    causation_id: str | None = None
    recorded_at: str
    previous_hash: str
    hash: str


class ArtifactRow(SQLModel, table=True):
    """A text by the SHA-256 of its UTF-8 bytes."""

    __tablename__ = "artifact"  # pyright: ignore[reportAssignmentType]
    digest: str = Field(primary_key=True)
    content: bytes = Field(sa_type=LargeBinary)


class ReplyRow(SQLModel, table=True):
    """A language model's reply by model (`brought`) and request: never asked twice."""

    __tablename__ = "reply"  # pyright: ignore[reportAssignmentType]
    model: str = Field(primary_key=True)
    request: str = Field(primary_key=True)
    text: str
    input_tokens: int
    output_tokens: int


class VectorRow(SQLModel, table=True):
    """An embedding as little-endian float32 bytes, by model (`brought`) and text."""

    __tablename__ = "vector"  # pyright: ignore[reportAssignmentType]
    model: str = Field(primary_key=True)
    text_hash: str = Field(primary_key=True)
    vector: bytes = Field(sa_type=LargeBinary)


class CauseRow(SQLModel, table=True):
    """A cause as of the last commit."""

    __tablename__ = "cause"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "cause_id"),)
    run_id: str
    cause_id: str
    number: int
    description: str = Field(sa_type=Text)
    node_id: str
    state: str
    frequency: int
    created_round: int


class NodeRow(SQLModel, table=True):
    """A skill node as of the last commit; an absorbed one names its survivor."""

    __tablename__ = "skill_node"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "node_id"),)
    run_id: str
    node_id: str
    number: int
    label: str = Field(sa_type=Text)
    absorbed_by: str | None = None


class RoundRow(SQLModel, table=True):
    """What a commit settled."""

    __tablename__ = "round_summary"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "round"),)
    run_id: str
    round: int
    first_sequence: int = Field(sa_type=BigInteger)
    last_sequence: int = Field(sa_type=BigInteger)
    position: int = Field(sa_type=BigInteger)
    failures: int
    reference_round: int | None = None
    reference_failures: int | None = None
    epsilon_next: str
    epsilon_next_value: float
    active: int
    mastered: int
    nodes: int
    candidates: int
    kept: int
    observed: int
    promoted: int
    reactivated: int
    created: int
    state_hash: str
    committed_at: str


class CauseHistoryRow(SQLModel, table=True):
    """A cause after the commit of a round: the memory as of any round in plain SQL."""

    __tablename__ = "cause_history"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "round", "cause_id"),)
    run_id: str
    round: int
    cause_id: str
    node_id: str
    node_label: str = Field(sa_type=Text)
    description: str = Field(sa_type=Text)
    state: str
    frequency: int
    probability: str | None = None


class SnapshotRow(SQLModel, table=True):
    """The fold right after a commit, so that opening a run need not start from its first event."""

    __tablename__ = "snapshot"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "round"),)
    run_id: str
    round: int
    sequence: int = Field(sa_type=BigInteger)
    position: int = Field(sa_type=BigInteger)
    version: int
    state_hash: str
    state: bytes = Field(sa_type=LargeBinary)


def brought(model: str, run_id: str) -> str:
    """What a model's replies and vectors are kept under that came with an imported run: they serve that run,
    and no other one believes them. A run's name has no line feed."""
    return f"{model}\n{run_id}"


def table(row: type[SQLModel]) -> Table:
    """The SQLAlchemy Core table of a row class."""
    return cast("Table", vars(row)["__table__"])  # set by SQLModel's metaclass, which does not say so
