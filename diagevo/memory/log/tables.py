"""The SQL tables of the memory: one class per table, whose fields are its columns.

`event` is the log and the only truth; `artifact`, `reply` and `vector` hold what events name by digest.
`cause`, `skill_node`, `round_summary`, `cause_history`, `snapshot`, `opened_round`, `ingested_group`,
`ingested_sum`, `ingested_prompt`, `cause_question` and `moved_failure` are projections, written with the
events that they follow from and made again by `memory rebuild`. `log` and `run` hold the heads under which
positions and sequences are given.

The log is written and read by the thousand rows, so statements go through SQLAlchemy Core on the tables of
the classes (`EVENT`, `CAUSE`, …); an ORM session reached a twentieth of the speed.
"""

from fractions import Fraction
from typing import Annotated, Any, cast

from sqlalchemy import (
    REAL,
    BigInteger,
    Float,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)
from sqlmodel import Field, SQLModel

METADATA = SQLModel.metadata
LONG = BigInteger().with_variant(Integer, "sqlite")
"""64 bits on every database."""
DOUBLE = Float().with_variant(REAL, "sqlite")
Str = Annotated[str, Field(sa_type=Text)]
StrOrNone = Annotated[str | None, Field(sa_type=Text)]
Long = Annotated[int, Field(sa_type=cast("Any", LONG))]
LongOrNone = Annotated[int | None, Field(sa_type=cast("Any", LONG))]
Real = Annotated[float, Field(sa_type=cast("Any", DOUBLE))]
RealOrNone = Annotated[float | None, Field(sa_type=cast("Any", DOUBLE))]
Bytes = Annotated[bytes, Field(sa_type=LargeBinary)]


def table(row: type[SQLModel]) -> Table:
    """The SQLAlchemy Core table of a row class."""
    return cast("Table", vars(row)["__table__"])  # set by SQLModel's metaclass, but not in its types


class LogRow(SQLModel, table=True):
    """One row: the last position given. Writers lock it."""

    __tablename__ = "log"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("id"),)
    id: int
    position: Long


class RunRow(SQLModel, table=True):
    """A run: the head of its chain."""

    __tablename__ = "run"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id"),)
    run_id: Str
    sequence: Long
    hash: Str
    created_at: Str
    imported: StrOrNone = None
    """For an imported run: the head that it came with. Its endpoints are not trusted."""


class EventRow(SQLModel, table=True):
    """The log. Append-only by triggers: no migration may batch-alter it (a copied table loses its
    triggers)."""

    __tablename__ = "event"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        PrimaryKeyConstraint("position"),
        UniqueConstraint("run_id", "event_id", name="uq_event_run_event_id"),
        UniqueConstraint("run_id", "sequence", name="uq_event_run_sequence"),
        Index("ix_event_run_type_round", "run_id", "type", "round"),
        # These two leave nulls out: the migration says so; said here it would import both dialects.
        Index("ix_event_run_cause", "run_id", "cause_id"),
        Index("ix_event_run_causation", "run_id", "causation_id"),
    )
    position: Long
    event_id: Str
    run_id: Str
    sequence: Long
    round: int
    type: Str
    schema_version: int
    cause_id: StrOrNone = None
    payload: Str
    causation_id: StrOrNone = None
    recorded_at: Str
    previous_hash: Str
    hash: Str


class ArtifactRow(SQLModel, table=True):
    """A text, by the SHA-256 of its UTF-8 bytes."""

    __tablename__ = "artifact"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("digest"),)
    digest: Str
    content: Bytes


class ReplyRow(SQLModel, table=True):
    """A language model's reply by model and request: never asked twice."""

    __tablename__ = "reply"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("model", "request"),)
    model: Str
    request: Str
    text: Str
    input_tokens: int
    output_tokens: int


class VectorRow(SQLModel, table=True):
    """An embedding as little-endian float32 bytes, by model (`brought`) and text."""

    __tablename__ = "vector"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("model", "text_hash"),)
    model: Str
    text_hash: Str
    vector: Bytes


class CauseRow(SQLModel, table=True):
    """A cause as of the last commit."""

    __tablename__ = "cause"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "cause_id"),)
    run_id: Str
    cause_id: Str
    number: int
    description: Str
    node_id: Str
    state: Str
    frequency: int
    created_round: int


class SkillNodeRow(SQLModel, table=True):
    """A skill node as of the last commit; an absorbed one names its survivor."""

    __tablename__ = "skill_node"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "node_id"),)
    run_id: Str
    node_id: Str
    number: int
    label: Str
    absorbed_by: StrOrNone = None


class RoundCounts(SQLModel):
    """Counts of a round's questions, failures and causes."""

    round: int
    candidates: int
    kept: int
    too_easy: int
    too_hard: int
    contested: int
    no_label: int
    invalid: int
    invalid_reasons: Annotated[dict[str, int], Field(sa_type=Text)]
    """By reason; `not_recorded` where the log is older than reasons."""
    responses: int
    """To valid questions that were answered in votes, and how many of them state an answer."""
    answers: int
    rollouts: int
    """Of another trainer, and how many passed its own check."""
    passes: int
    undecided: int
    """Pairs of answers that count as different because comparing them reached no verdict."""
    labels_judged: int
    """Kept questions whose truth is known, and how many of their labels are true."""
    labels_true: int
    observed: int
    """Failures; the void ones are left out, here and below."""
    against_answers: int
    """Of them those that are compared with the known answer."""
    failures_judged: int
    """Of them those whose label can be checked, and those that stand against a false one."""
    against_false_labels: int
    right_answers: int | None
    """Of those that can be checked, how many give the true answer; null where that was not recorded."""
    right_against_false: int | None
    """The same of those that stand against a false label."""
    with_cause: int
    """Failures that were counted under a cause, on so many questions."""
    questions_with_cause: int
    promoted: int
    promoted_causes: Annotated[tuple[str, ...], Field(sa_type=Text)]
    """In the order of their numbers."""
    reactivated: int
    reactivated_causes: Annotated[tuple[str, ...], Field(sa_type=Text)]
    created: int


class RoundSummaryRow(RoundCounts, table=True):
    """What a commit settled."""

    __tablename__ = "round_summary"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "round"),)
    run_id: Str
    first_sequence: Long
    last_sequence: Long
    position: Long
    failures: int
    reference_round: int | None = None
    reference_failures: int | None = None
    epsilon_next: Str
    epsilon_next_value: Real
    active: int
    mastered: int
    nodes: int
    state_hash: Str
    committed_at: Str


class OpenedRoundRow(SQLModel, table=True):
    """A round that was opened, and whether it still counts."""

    __tablename__ = "opened_round"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (
        PrimaryKeyConstraint("run_id", "round"),
        # Of rounds that count, which the migration says.
        Index("ix_opened_round_batch", "run_id", "batch", unique=True),
    )
    run_id: Str
    round: int
    batch: int
    """The number under which its groups were ingested."""
    position: Long
    superseded_by: int | None = None
    """The round that plays its batch again."""
    superseded_at: LongOrNone = None
    """Position of the superseding."""


class IngestedGroupRow(SQLModel, table=True):
    """A group of another trainer's rollouts; those that a resumed training voided are left out."""

    __tablename__ = "ingested_group"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("position"), Index("ix_ingested_group_run", "run_id"))
    position: Long
    run_id: Str
    batch: int
    step: int
    attempt: int
    place: int
    question: Str
    rollouts: int
    passes: int
    tags: Str
    """JSON."""


class IngestedSumRow(SQLModel, table=True):
    """The groups of a step added up, all and those of each tag."""

    __tablename__ = "ingested_sum"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "batch", "step", "tag"),)
    run_id: Str
    batch: int
    step: int
    tag: Str
    """Empty of all groups, else `#` and the tag."""
    groups: int
    all_passed: int
    contrast: int
    all_failed: int
    rollouts: int
    passes: int


class IngestedPromptRow(SQLModel, table=True):
    """A prompt of another trainer: its groups added up, and those of its first and last step."""

    __tablename__ = "ingested_prompt"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "question"),)
    run_id: Str
    question: Str
    position: Long
    """Of its first group."""
    steps: int
    rollouts: int
    passes: int
    unanswered: int
    """Rollouts in groups of which none passed."""
    first_step: int
    first_rollouts: int
    first_passes: int
    last_step: int
    last_rollouts: int
    last_passes: int
    explained: int
    """Failures that are counted under a cause, in rounds that count."""


class CauseQuestionRow(SQLModel, table=True):
    """The failures of a question that were counted under a cause; those of superseded rounds stay."""

    __tablename__ = "cause_question"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "round", "question_id", "cause_id"),)
    run_id: Str
    round: int
    question_id: Str
    cause_id: Str
    question: Str
    responses: int
    first: int
    failures: int


class MovedFailureRow(SQLModel, table=True):
    """A failure that somebody moved into a cause (1) or out of one (-1), which `cause_question` does not
    include."""

    __tablename__ = "moved_failure"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "position"),)
    run_id: Str
    position: Long
    round: int
    """The failure's."""
    question_id: Str
    failure_id: Str
    cause_id: Str
    question: Str
    failures: int


class CauseCounts(SQLModel):
    """A round's counts for a cause, and its questions about it."""

    round: int
    cause_id: Str
    failures: int = 0
    questions: int = 0
    """Those that the failures are on."""
    responses: int = 0
    """To these questions, and how many of them agree or passed."""
    first: int = 0
    aimed: int = 0
    """Questions that aimed at the cause; of them the kept and the valid ones."""
    aimed_kept: int = 0
    aimed_valid: int = 0
    agreement: Annotated[Fraction | None, Field(sa_type=Text)] = None
    """Mean p₁ of the valid ones."""


class CauseStanding(SQLModel):
    """The state of a cause after the commit of a round."""

    run_id: Str
    round: int
    cause_id: Str
    node_id: Str
    node_label: Str
    description: Str
    state: Str
    frequency: int
    probability: StrOrNone = None


class CauseHistoryRow(CauseCounts, CauseStanding, table=True):
    """A cause after the commit of a round: the memory as of any round in plain SQL."""

    __tablename__ = "cause_history"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "round", "cause_id"),)


class SnapshotRow(SQLModel, table=True):
    """The fold right after a commit, so that opening a run need not start from its first event."""

    __tablename__ = "snapshot"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "round"),)
    run_id: Str
    round: int
    sequence: Long
    position: Long
    version: int
    state_hash: Str
    state: Bytes


LOG, RUN, EVENT = table(LogRow), table(RunRow), table(EventRow)
ARTIFACT, REPLY, VECTOR = table(ArtifactRow), table(ReplyRow), table(VectorRow)
CAUSE, NODE, ROUND = table(CauseRow), table(SkillNodeRow), table(RoundSummaryRow)
OPENED, GROUP, SUM = table(OpenedRoundRow), table(IngestedGroupRow), table(IngestedSumRow)
PROMPT, QUESTION, HISTORY = table(IngestedPromptRow), table(CauseQuestionRow), table(CauseHistoryRow)
SNAPSHOT, MOVED = table(SnapshotRow), table(MovedFailureRow)


def imported_vector_key(model: str, run_id: str) -> str:
    """The key of a model's vectors that came with an imported run: they serve that run, and no other one
    trusts them. A run's name has no line feed."""
    return f"{model}\n{run_id}"
