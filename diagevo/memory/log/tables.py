"""The SQL tables of the memory, for SQLAlchemy Core.

`event` is the log and the only truth; `artifact`, `reply` and `vector` hold what events name by digest.
`cause`, `skill_node`, `round_summary`, `cause_history`, `snapshot`, `opened_round`, `ingested_group`,
`ingested_sum`, `ingested_prompt` and `cause_question` are projections, written with the events that they
follow from and made again by `memory rebuild`. `log` and `run` hold the heads under which positions and
sequences are given.

No rows are made as objects, so these are no SQLModel classes as the evaluations have them: importing SQLModel
is about a sixth of what `memory show` costs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from types import NoneType
from typing import Any, get_args, get_type_hints

from sqlalchemy import (
    REAL,
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()
LONG = BigInteger().with_variant(Integer, "sqlite")
"""64 bits on every database."""
DOUBLE = Float().with_variant(REAL, "sqlite")


def _column(name: str, of: Any) -> Column[Any]:
    """A column without nulls; those that may be null are plain `Column`s."""
    return Column(name, of, nullable=False)


LOG = Table(
    "log",
    METADATA,
    _column("id", Integer),
    _column("position", LONG),
    PrimaryKeyConstraint("id"),
)
"""One row: the last position given. Writers lock it."""

RUN = Table(
    "run",
    METADATA,
    _column("run_id", Text),
    _column("sequence", LONG),
    _column("hash", Text),
    _column("created_at", Text),
    # Of a run that came from outside: the head that it came with. Its endpoints are somebody else's word.
    Column("imported", Text),
    PrimaryKeyConstraint("run_id"),
)
"""A run: the head of its chain."""

EVENT = Table(
    "event",
    METADATA,
    _column("position", LONG),
    _column("event_id", Text),
    _column("run_id", Text),
    _column("sequence", LONG),
    _column("round", Integer),
    _column("type", Text),
    _column("schema_version", Integer),
    Column("cause_id", Text),
    _column("payload", Text),
    Column("causation_id", Text),
    _column("recorded_at", Text),
    _column("previous_hash", Text),
    _column("hash", Text),
    PrimaryKeyConstraint("position"),
    UniqueConstraint("run_id", "event_id", name="uq_event_run_event_id"),
    UniqueConstraint("run_id", "sequence", name="uq_event_run_sequence"),
    Index("ix_event_run_type_round", "run_id", "type", "round"),
    # These two leave nulls out: the migration says so; said here it would import both dialects.
    Index("ix_event_run_cause", "run_id", "cause_id"),
    Index("ix_event_run_causation", "run_id", "causation_id"),
)
"""The log. Append-only by triggers: no migration may batch-alter it (a copied table loses its
triggers)."""

ARTIFACT = Table(
    "artifact",
    METADATA,
    _column("digest", Text),
    _column("content", LargeBinary),
    PrimaryKeyConstraint("digest"),
)
"""A text by the SHA-256 of its UTF-8 bytes."""

REPLY = Table(
    "reply",
    METADATA,
    _column("model", Text),
    _column("request", Text),
    _column("text", Text),
    _column("input_tokens", Integer),
    _column("output_tokens", Integer),
    PrimaryKeyConstraint("model", "request"),
)
"""A language model's reply by model and request: never asked twice."""

VECTOR = Table(
    "vector",
    METADATA,
    _column("model", Text),
    _column("text_hash", Text),
    _column("vector", LargeBinary),
    PrimaryKeyConstraint("model", "text_hash"),
)
"""An embedding as little-endian float32 bytes, by model (`brought`) and text."""

CAUSE = Table(
    "cause",
    METADATA,
    _column("run_id", Text),
    _column("cause_id", Text),
    _column("number", Integer),
    _column("description", Text),
    _column("node_id", Text),
    _column("state", Text),
    _column("frequency", Integer),
    _column("created_round", Integer),
    PrimaryKeyConstraint("run_id", "cause_id"),
)
"""A cause as of the last commit."""

NODE = Table(
    "skill_node",
    METADATA,
    _column("run_id", Text),
    _column("node_id", Text),
    _column("number", Integer),
    _column("label", Text),
    Column("absorbed_by", Text),
    PrimaryKeyConstraint("run_id", "node_id"),
)
"""A skill node as of the last commit; an absorbed one names its survivor."""


@dataclass(frozen=True, slots=True)
class RoundCounts:
    """What was counted of a round's questions, failures and causes: columns of `round_summary`."""

    round: int
    candidates: int
    kept: int
    too_easy: int
    too_hard: int
    contested: int
    no_label: int
    invalid: int
    invalid_reasons: dict[str, int]
    """By reason; `not_recorded` where the log is older than reasons."""
    responses: int
    """To valid questions that were answered in votes, and how many of them state an answer."""
    answers: int
    rollouts: int
    """Of another trainer, and how many passed its own check."""
    passes: int
    undecided: int
    """Pairs of answers that stand apart because comparing them came to no verdict."""
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
    promoted_causes: tuple[str, ...]
    """In the order of their numbers."""
    reactivated: int
    reactivated_causes: tuple[str, ...]
    created: int


@dataclass(slots=True)
class CauseCounts:
    """What a round counted under a cause, and asked about it: columns of `cause_history`."""

    round: int
    cause_id: str
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
    agreement: Fraction | None = None
    """Mean p₁ of the valid ones."""


def _counted(of: type) -> Iterator[Column[Any]]:
    """The fields as columns: what is no number is a text."""
    for name, kind in get_type_hints(of).items():
        null = NoneType in get_args(kind)
        yield Column(name, Integer if kind in (int, int | None) else Text, nullable=null)


ROUND = Table(
    "round_summary",
    METADATA,
    _column("run_id", Text),
    *_counted(RoundCounts),
    _column("first_sequence", LONG),
    _column("last_sequence", LONG),
    _column("position", LONG),
    _column("failures", Integer),
    Column("reference_round", Integer),
    Column("reference_failures", Integer),
    _column("epsilon_next", Text),
    _column("epsilon_next_value", DOUBLE),
    _column("active", Integer),
    _column("mastered", Integer),
    _column("nodes", Integer),
    _column("state_hash", Text),
    _column("committed_at", Text),
    PrimaryKeyConstraint("run_id", "round"),
)
"""What a commit settled."""

OPENED = Table(
    "opened_round",
    METADATA,
    _column("run_id", Text),
    _column("round", Integer),
    # The number under which its groups were ingested.
    _column("batch", Integer),
    _column("position", LONG),
    # The round that plays its batch again.
    Column("superseded_by", Integer),
    # Position of the superseding.
    Column("superseded_at", LONG),
    PrimaryKeyConstraint("run_id", "round"),
    # Of rounds that count, which the migration says.
    Index("ix_opened_round_batch", "run_id", "batch", unique=True),
)
"""A round that was opened, and whether it still counts."""

GROUP = Table(
    "ingested_group",
    METADATA,
    _column("position", LONG),
    _column("run_id", Text),
    _column("batch", Integer),
    _column("step", Integer),
    _column("attempt", Integer),
    _column("place", Integer),
    _column("question", Text),
    _column("rollouts", Integer),
    _column("passes", Integer),
    # JSON.
    _column("tags", Text),
    PrimaryKeyConstraint("position"),
    Index("ix_ingested_group_run", "run_id"),
)
"""A group of another trainer's rollouts; those that a resumed training voided are left out."""

SUM = Table(
    "ingested_sum",
    METADATA,
    _column("run_id", Text),
    _column("batch", Integer),
    _column("step", Integer),
    # Empty of all groups, else `#` and the tag.
    _column("tag", Text),
    _column("groups", Integer),
    _column("all_passed", Integer),
    _column("contrast", Integer),
    _column("all_failed", Integer),
    _column("rollouts", Integer),
    _column("passes", Integer),
    PrimaryKeyConstraint("run_id", "batch", "step", "tag"),
)
"""The groups of a step added up, all and those of each tag."""

PROMPT = Table(
    "ingested_prompt",
    METADATA,
    _column("run_id", Text),
    _column("question", Text),
    # Of its first group.
    _column("position", LONG),
    _column("steps", Integer),
    _column("rollouts", Integer),
    _column("passes", Integer),
    # Rollouts in groups of which none passed.
    _column("unanswered", Integer),
    _column("first_step", Integer),
    _column("first_rollouts", Integer),
    _column("first_passes", Integer),
    _column("last_step", Integer),
    _column("last_rollouts", Integer),
    _column("last_passes", Integer),
    # Failures that are counted under a cause, in rounds that count.
    _column("explained", Integer),
    PrimaryKeyConstraint("run_id", "question"),
)
"""A prompt of another trainer: its groups added up, and those of its first and last step."""

QUESTION = Table(
    "cause_question",
    METADATA,
    _column("run_id", Text),
    _column("round", Integer),
    _column("question_id", Text),
    _column("cause_id", Text),
    _column("question", Text),
    _column("responses", Integer),
    _column("first", Integer),
    _column("failures", Integer),
    PrimaryKeyConstraint("run_id", "round", "question_id", "cause_id"),
)
"""The failures of a question that were counted under a cause; those of superseded rounds stay."""

HISTORY = Table(
    "cause_history",
    METADATA,
    _column("run_id", Text),
    *_counted(CauseCounts),
    _column("node_id", Text),
    _column("node_label", Text),
    _column("description", Text),
    _column("state", Text),
    _column("frequency", Integer),
    Column("probability", Text),
    PrimaryKeyConstraint("run_id", "round", "cause_id"),
)
"""A cause after the commit of a round: the memory as of any round in plain SQL."""

SNAPSHOT = Table(
    "snapshot",
    METADATA,
    _column("run_id", Text),
    _column("round", Integer),
    _column("sequence", LONG),
    _column("position", LONG),
    _column("version", Integer),
    _column("state_hash", Text),
    _column("state", LargeBinary),
    PrimaryKeyConstraint("run_id", "round"),
)
"""The fold right after a commit, so that opening a run need not start from its first event."""


def brought(model: str, run_id: str) -> str:
    """What a model's vectors are kept under that came with an imported run: they serve that run, and no other
    one believes them. A run's name has no line feed."""
    return f"{model}\n{run_id}"
