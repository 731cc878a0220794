"""The log, what events name, projections and evaluations; triggers that keep the log append-only."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
REAL = sa.Float().with_variant(sa.REAL, "sqlite")
"""A STRICT table of SQLite takes INTEGER, REAL, TEXT and BLOB, and no other name of a type."""

SQLITE_TRIGGERS = (
    """CREATE TRIGGER event_no_update BEFORE UPDATE ON event
    BEGIN SELECT RAISE(ABORT, 'event is append-only'); END""",
    """CREATE TRIGGER event_no_delete BEFORE DELETE ON event
    BEGIN SELECT RAISE(ABORT, 'event is append-only'); END""",
    # INSERT OR REPLACE deletes without firing the trigger above. FAIL, because ABORT makes SQLite keep a
    # journal a row, to take back what the statement did before it: a fifth of an append's time. A row of the
    # log is a statement of its own, and an append that is refused is rolled back as a whole.
    """CREATE TRIGGER event_no_replace BEFORE INSERT ON event
    WHEN EXISTS (SELECT 1 FROM event WHERE position = NEW.position)
      OR EXISTS (SELECT 1 FROM event WHERE run_id = NEW.run_id AND event_id = NEW.event_id)
      OR EXISTS (SELECT 1 FROM event WHERE run_id = NEW.run_id AND sequence = NEW.sequence)
    BEGIN SELECT RAISE(FAIL, 'UNIQUE constraint failed: event exists'); END""",
)
POSTGRES_TRIGGERS = (
    """CREATE FUNCTION event_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'event is append-only'; END $$""",
    """CREATE TRIGGER event_no_update BEFORE UPDATE OR DELETE ON event
    FOR EACH ROW EXECUTE FUNCTION event_append_only()""",
    """CREATE TRIGGER event_no_truncate BEFORE TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION event_append_only()""",
    # `session_replication_role = replica` passes over a trigger that is not ENABLE ALWAYS.
    "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_update",
    "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_truncate",
    "REVOKE UPDATE, DELETE, TRUNCATE ON event FROM PUBLIC",
)


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    _log()
    _named_by_events()
    _projections()
    _evaluations()
    for statement in SQLITE_TRIGGERS if dialect == "sqlite" else POSTGRES_TRIGGERS:
        op.execute(statement)


Columns = list[sa.Column]


def _create(name: str, *parts: Columns, key: tuple[str, ...], more: tuple[sa.Constraint, ...] = ()) -> None:
    columns = (column for part in parts for column in part)
    op.create_table(name, *columns, sa.PrimaryKeyConstraint(*key), *more, sqlite_strict=True)


def _text(*names: str, null: bool = False) -> Columns:
    return [sa.Column(name, sa.Text, nullable=null) for name in names]


def _integer(*names: str, null: bool = False) -> Columns:
    return [sa.Column(name, sa.Integer, nullable=null, autoincrement=False) for name in names]


def _long(*names: str) -> Columns:
    return [sa.Column(name, LONG, nullable=False, autoincrement=False) for name in names]


def _bytes(name: str) -> Columns:
    return [sa.Column(name, sa.LargeBinary, nullable=False)]


def _real(name: str, *, null: bool = False) -> Columns:
    return [sa.Column(name, REAL, nullable=null)]


def _log() -> None:
    _create("log", _integer("id"), _long("position"), key=("id",))
    op.execute("INSERT INTO log (id, position) VALUES (1, 0)")
    _create(
        "run",
        _text("run_id"),
        _long("sequence"),
        _text("hash", "created_at"),
        _text("imported", null=True),
        key=("run_id",),
    )
    _create(
        "event",
        _long("position"),
        _text("event_id", "run_id"),
        _long("sequence"),
        _integer("round"),
        _text("type"),
        _integer("schema_version"),
        _text("cause_id", null=True),
        _text("payload"),
        _text("causation_id", null=True),
        _text("recorded_at", "previous_hash", "hash"),
        key=("position",),
        more=(
            sa.UniqueConstraint("run_id", "event_id", name="uq_event_run_event_id"),
            sa.UniqueConstraint("run_id", "sequence", name="uq_event_run_sequence"),
        ),
    )
    op.create_index("ix_event_run_type_round", "event", ["run_id", "type", "round"])
    for index, columns in (
        ("ix_event_run_cause", ["run_id", "cause_id"]),
        ("ix_event_run_causation", ["run_id", "causation_id"]),
    ):
        there = sa.text(f"{columns[-1]} IS NOT NULL")
        op.create_index(index, "event", columns, sqlite_where=there, postgresql_where=there)


def _named_by_events() -> None:
    _create("artifact", _text("digest"), _bytes("content"), key=("digest",))
    _create(
        "reply",
        _text("model", "request", "text"),
        _integer("input_tokens", "output_tokens"),
        key=("model", "request"),
    )
    _create("vector", _text("model", "text_hash"), _bytes("vector"), key=("model", "text_hash"))


def _projections() -> None:
    _create(
        "cause",
        _text("run_id", "cause_id"),
        _integer("number"),
        _text("description", "node_id", "state"),
        _integer("frequency", "created_round"),
        key=("run_id", "cause_id"),
    )
    _create(
        "skill_node",
        _text("run_id", "node_id"),
        _integer("number"),
        _text("label"),
        _text("absorbed_by", null=True),
        key=("run_id", "node_id"),
    )
    counts = ("active", "mastered", "nodes", "candidates", "kept", "observed", "promoted", "reactivated")
    _create(
        "round_summary",
        _text("run_id"),
        _integer("round"),
        _long("first_sequence", "last_sequence", "position"),
        _integer("failures"),
        _integer("reference_round", "reference_failures", null=True),
        _text("epsilon_next"),
        _real("epsilon_next_value"),
        _integer(*counts, "created"),
        _text("state_hash", "committed_at"),
        key=("run_id", "round"),
    )
    _create(
        "cause_history",
        _text("run_id"),
        _integer("round"),
        _text("cause_id", "node_id", "node_label", "description", "state"),
        _integer("frequency"),
        _text("probability", null=True),
        key=("run_id", "round", "cause_id"),
    )
    _create(
        "snapshot",
        _text("run_id"),
        _integer("round"),
        _long("sequence", "position"),
        _integer("version"),
        _text("state_hash"),
        _bytes("state"),
        key=("run_id", "round"),
    )


def _evaluations() -> None:
    _create(
        "evaluation",
        _text("evaluation_id"),
        _text("run_id", null=True),
        _integer("round", null=True),
        _text("benchmark", "model", "conditions"),
        _integer("questions"),
        _text("metrics", null=True),
        _text("began_at"),
        _text("finished_at", null=True),
        key=("evaluation_id",),
    )
    op.create_index("ix_evaluation_run_round", "evaluation", ["run_id", "round"])
    _create(
        "evaluation_result",
        _text("evaluation_id"),
        _integer("question"),
        _text("category", null=True),
        _text("kind", "prompt", "reference", "responses", "truncated", "extracted", "by_rule"),
        _text("judged", "judge", "correct", null=True),
        _real("score", null=True),
        key=("evaluation_id", "question"),
        more=(sa.ForeignKeyConstraint(["evaluation_id"], ["evaluation.evaluation_id"]),),
    )
    _create(
        "oracle",
        _text("run_id"),
        _integer("round"),
        _text("question_id", "question", "label"),
        _text("answer", "source", "note", null=True),
        key=("run_id", "round", "question_id"),
    )
