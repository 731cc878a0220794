"""The log, its artifacts and its projections; triggers that keep the log append-only; the reading views."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")

SQLITE_TRIGGERS = (
    """CREATE TRIGGER event_no_update BEFORE UPDATE ON event
    BEGIN SELECT RAISE(ABORT, 'event is append-only'); END""",
    """CREATE TRIGGER event_no_delete BEFORE DELETE ON event
    BEGIN SELECT RAISE(ABORT, 'event is append-only'); END""",
    # INSERT OR REPLACE deletes without firing the trigger above.
    """CREATE TRIGGER event_no_replace BEFORE INSERT ON event
    WHEN EXISTS (SELECT 1 FROM event WHERE position = NEW.position)
      OR EXISTS (SELECT 1 FROM event WHERE event_id = NEW.event_id)
      OR EXISTS (SELECT 1 FROM event WHERE run_id = NEW.run_id AND sequence = NEW.sequence)
    BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: event exists'); END""",
)
POSTGRES_TRIGGERS = (
    """CREATE FUNCTION event_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'event is append-only'; END $$""",
    """CREATE TRIGGER event_no_update BEFORE UPDATE OR DELETE ON event
    FOR EACH ROW EXECUTE FUNCTION event_append_only()""",
    """CREATE TRIGGER event_no_truncate BEFORE TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION event_append_only()""",
    "REVOKE UPDATE, DELETE, TRUNCATE ON event FROM PUBLIC",
)

VIEWS = {
    "v_event": """SELECT position, event_id, run_id, sequence, round, type, cause_id, payload, causation_id,
        recorded_at FROM event""",
    "v_cause": """SELECT c.run_id, c.cause_id, c.number, c.description, c.node_id, n.label AS node, c.state,
        c.frequency, c.created_round
        FROM cause c JOIN skill_node n ON n.run_id = c.run_id AND n.node_id = c.node_id""",
    "v_node": """SELECT n.run_id, n.node_id, n.number, n.label, n.absorbed_by,
        (SELECT count(*) FROM cause c WHERE c.run_id = n.run_id AND c.node_id = n.node_id) AS causes
        FROM skill_node n""",
    "v_round": "SELECT * FROM round_summary",
    "v_cause_history": "SELECT * FROM cause_history",
    "v_candidate": """SELECT run_id, position, round, {question_id} AS question_id, {mode} AS mode, cause_id,
        {stitched_cause_id} AS stitched_cause_id, {responses:int} AS responses, {first:int} AS first,
        {second:int} AS second, {label} AS label, {verdict} AS verdict, {question} AS question,
        {reference} AS reference FROM event WHERE type = 'CandidateScored'""",
    "v_failure": """SELECT run_id, position, round, {failure_id} AS failure_id, {question_id} AS question_id,
        {stage} AS stage, {attempt:int} AS attempt, {step:int} AS step, {trajectory} AS trajectory,
        {reference} AS reference FROM event WHERE type = 'FailureObserved'""",
    "v_diagnosis": """SELECT run_id, position, round, {failure_id} AS failure_id, {attempt:int} AS attempt,
        {verdict} AS verdict, cause_id, {description} AS description
        FROM event WHERE type = 'FailureDiagnosed'""",
    "v_match": """SELECT run_id, position, round, cause_id, {failure_id} AS failure_id, {via} AS via
        FROM event WHERE type = 'CauseMatched'""",
    "v_promotion": """SELECT run_id, position, round, cause_id, {questions:int} AS questions,
        {consistency} AS consistency, {threshold} AS threshold, {closed_frequency:int} AS closed_frequency
        FROM event WHERE type = 'CausePromoted'""",
    "v_reactivation": """SELECT run_id, position, round, cause_id, {failure_id} AS failure_id,
        {promotion} AS promotion FROM event WHERE type = 'CauseReactivated'""",
}


class _Field:
    """`{name}` and `{name:int}` in a view become the reading of that field of the payload."""

    def __init__(self, name: str, dialect: str) -> None:
        self.name, self.dialect = name, dialect

    def __format__(self, kind: str) -> str:
        if self.dialect == "sqlite":
            return f"json_extract(payload, '$.{self.name}')"
        read = f"(payload::json ->> '{self.name}')"
        return f"{read}::integer" if kind == "int" else read


class _Fields(dict[str, _Field]):
    def __init__(self, dialect: str) -> None:
        super().__init__()
        self.dialect = dialect

    def __missing__(self, name: str) -> _Field:
        return _Field(name, self.dialect)


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    op.create_table(
        "log",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO log (id, position) VALUES (1, 0)")
    op.create_table(
        "run",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String, nullable=False),
        sa.Column("created_at", sa.String, nullable=False),
        sa.Column("holder", sa.String),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("renewed_at", sa.String),
    )
    op.create_table(
        "event",
        sa.Column("position", LONG, primary_key=True, autoincrement=False),
        sa.Column("event_id", sa.String, nullable=False),
        sa.Column("run_id", sa.String, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("type", sa.String, nullable=False),
        sa.Column("schema_version", sa.Integer, nullable=False),
        sa.Column("cause_id", sa.String),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("causation_id", sa.String),
        sa.Column("recorded_at", sa.String, nullable=False),
        sa.Column("previous_hash", sa.String, nullable=False),
        sa.Column("hash", sa.String, nullable=False),
        sa.UniqueConstraint("event_id", name="uq_event_event_id"),
        sa.UniqueConstraint("run_id", "sequence", name="uq_event_run_sequence"),
    )
    op.create_index("ix_event_run_type_round", "event", ["run_id", "type", "round"])
    op.create_index(
        "ix_event_run_cause",
        "event",
        ["run_id", "cause_id"],
        sqlite_where=sa.text("cause_id IS NOT NULL"),
        postgresql_where=sa.text("cause_id IS NOT NULL"),
    )
    op.create_index(
        "ix_event_causation",
        "event",
        ["causation_id"],
        sqlite_where=sa.text("causation_id IS NOT NULL"),
        postgresql_where=sa.text("causation_id IS NOT NULL"),
    )
    op.create_table(
        "artifact",
        sa.Column("digest", sa.String, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "reply",
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("request", sa.String, primary_key=True),
        sa.Column("text", sa.String, nullable=False),
        sa.Column("input_tokens", sa.Integer, nullable=False),
        sa.Column("output_tokens", sa.Integer, nullable=False),
    )
    op.create_table(
        "vector",
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("text_hash", sa.String, primary_key=True),
        sa.Column("vector", sa.LargeBinary, nullable=False),
    )
    _projections()
    for statement in SQLITE_TRIGGERS if dialect == "sqlite" else POSTGRES_TRIGGERS:
        op.execute(statement)
    for name, query in VIEWS.items():
        op.execute(f"CREATE VIEW {name} AS " + query.format_map(_Fields(dialect)))


def _projections() -> None:
    op.create_table(
        "cause",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("cause_id", sa.String, primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("node_id", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("frequency", sa.Integer, nullable=False),
        sa.Column("created_round", sa.Integer, nullable=False),
    )
    op.create_table(
        "skill_node",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("node_id", sa.String, primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("absorbed_by", sa.String),
    )
    op.create_table(
        "round_summary",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("first_sequence", sa.BigInteger, nullable=False),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("reference_round", sa.Integer),
        sa.Column("reference_failures", sa.Integer),
        sa.Column("epsilon_next", sa.String, nullable=False),
        sa.Column("epsilon_next_value", sa.Float, nullable=False),
        *(
            sa.Column(name, sa.Integer, nullable=False)
            for name in ("active", "mastered", "nodes", "candidates", "kept", "observed")
        ),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("promoted", "reactivated", "created")),
        sa.Column("state_hash", sa.String, nullable=False),
        sa.Column("committed_at", sa.String, nullable=False),
    )
    op.create_table(
        "cause_history",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cause_id", sa.String, primary_key=True),
        sa.Column("node_id", sa.String, nullable=False),
        sa.Column("node_label", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("frequency", sa.Integer, nullable=False),
        sa.Column("probability", sa.String),
    )
    op.create_table(
        "snapshot",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("state_hash", sa.String, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )
