"""The log, what events name, projections and evaluations; triggers that keep the log append-only; the reading
views."""

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
    for name, query in _views(dialect == "sqlite").items():
        op.execute(f"CREATE VIEW {name} AS {query}")


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
    optional = ("proposed", "votes", "proposer", "answer", "source", "note")
    _create(
        "oracle",
        _text("run_id"),
        _integer("round"),
        _text("question_id", "question", "label"),
        _text(*optional, null=True),
        key=("run_id", "round", "question_id"),
    )


def _views(sqlite: bool) -> dict[str, str]:
    """The views by name, each after those that it reads."""

    def read(name: str, kind: str = "text", payload: str = "payload") -> str:
        """A field of the payload; a flag is 1, 0 or null."""
        if sqlite:
            return f"json_extract({payload}, '$.{name}')"
        field = f"({payload}::json ->> '{name}')"
        return {"int": f"{field}::integer", "flag": f"{field}::boolean::integer"}.get(kind, field)

    def named(fields: str) -> str:
        """Fields of the payload as columns of their names: `label`, or with a kind, `first:int`."""
        pairs = (field.partition(":") for field in fields.split())
        return ", ".join(f"{read(name, kind)} AS {name}" for name, _, kind in pairs)

    def text(artifact: str) -> str:
        """An artifact's content as text."""
        return f"CAST({artifact}.content AS TEXT)" if sqlite else f"convert_from({artifact}.content, 'UTF8')"

    rewards = "payload, '$.rewards'" if sqlite else "payload::json -> 'rewards'"
    real = "REAL" if sqlite else "double precision"
    outcomes = ", ".join(
        f"sum(CASE WHEN outcome = '{name}' THEN 1 ELSE 0 END) AS {name}"
        for name in ("all_passed", "contrast", "all_failed")
    )
    return {
        "v_event": """SELECT position, event_id, run_id, sequence, round, type, cause_id, payload,
        causation_id, recorded_at FROM event""",
        "v_cause": """SELECT c.run_id, c.cause_id, c.number, c.description, c.node_id, n.label AS node,
        c.state, c.frequency, c.created_round
        FROM cause c JOIN skill_node n ON n.run_id = c.run_id AND n.node_id = c.node_id""",
        "v_node": """SELECT n.run_id, n.node_id, n.number, n.label, n.absorbed_by,
        (SELECT count(*) FROM cause c WHERE c.run_id = n.run_id AND c.node_id = n.node_id) AS causes
        FROM skill_node n""",
        "v_superseded": f"""SELECT run_id, position, {named("first:int last:int reason")}
        FROM event WHERE type = 'RoundsSuperseded'""",
        "v_round": """SELECT r.*, (SELECT min(s.position) FROM v_superseded s
        WHERE s.run_id = r.run_id AND r.round BETWEEN s.first AND s.last) AS superseded_at
        FROM round_summary r""",
        "v_cause_history": "SELECT * FROM cause_history",
        "v_candidate": f"""SELECT run_id, position, round, {named("question_id mode")}, cause_id,
        {named("stitched_cause_id responses:int first:int second:int label verdict question reference")},
        {named("votes invalid_reason undecided:int truth label_true:flag drawn_round:int votes_are")}
        FROM event WHERE type = 'CandidateScored'""",
        "v_failure": f"""SELECT run_id, position, round, {named("failure_id question_id stage attempt:int")},
        {named("step:int trajectory reference")}, {read("right", "flag")} AS right_answer,
        COALESCE({read("against")}, 'response') AS against,
        (SELECT {read("label_true", "flag", "asked.payload")} FROM event asked
            WHERE asked.run_id = event.run_id AND asked.event_id = event.causation_id) AS label_true
        FROM event WHERE type = 'FailureObserved'""",
        "v_diagnosis": f"""SELECT run_id, position, round, {named("failure_id attempt:int verdict")},
        cause_id, {named("description")} FROM event WHERE type = 'FailureDiagnosed'""",
        "v_match": f"""SELECT run_id, position, round, cause_id, {named("failure_id via")}
        FROM event WHERE type = 'CauseMatched'""",
        "v_promotion": f"""SELECT run_id, position, round, cause_id,
        {named("questions:int consistency threshold closed_frequency:int")}
        FROM event WHERE type = 'CausePromoted'""",
        "v_reactivation": f"""SELECT run_id, position, round, cause_id, {named("failure_id promotion")}
        FROM event WHERE type = 'CauseReactivated'""",
        "v_question": f"""SELECT c.run_id, c.position, c.round, c.question_id, c.mode,
        c.cause_id, aim.description AS cause, c.stitched_cause_id, beside.description AS stitched_cause,
        {text("asked")} AS text, c.votes, c.votes_are, c.responses, c.first, c.second, c.label,
        c.truth, c.label_true, c.verdict, c.invalid_reason
        FROM v_candidate c
        LEFT JOIN artifact asked ON asked.digest = c.question
        LEFT JOIN cause aim ON aim.run_id = c.run_id AND aim.cause_id = c.cause_id
        LEFT JOIN cause beside ON beside.run_id = c.run_id AND beside.cause_id = c.stitched_cause_id""",
        "v_trajectory": f"""SELECT f.run_id, f.position, f.round, f.failure_id, f.attempt,
        f.question_id, {text("asked")} AS question, {text("failed")} AS trajectory,
        {text("agreed")} AS reference, c.label, c.truth, f.label_true, f.right_answer, f.against,
        counted.via, counted.cause_id, cause.description AS cause
        FROM (SELECT v_failure.*, max(attempt) OVER (PARTITION BY run_id, round, failure_id) AS last
            FROM v_failure) f
        LEFT JOIN v_candidate c ON c.run_id = f.run_id AND c.round = f.round AND c.question_id = f.question_id
        LEFT JOIN (SELECT run_id, round, failure_id, via, cause_id FROM v_match
            UNION ALL SELECT run_id, round, {read("failure_id")}, 'new cause', cause_id FROM event
            WHERE type = 'CauseCreated') counted ON counted.run_id = f.run_id AND counted.round = f.round
            AND counted.failure_id = f.failure_id AND f.attempt = f.last
        LEFT JOIN cause ON cause.run_id = f.run_id AND cause.cause_id = counted.cause_id
        LEFT JOIN artifact asked ON asked.digest = c.question
        LEFT JOIN artifact failed ON failed.digest = f.trajectory
        LEFT JOIN artifact agreed ON agreed.digest = f.reference""",
        "v_group": f"""WITH g AS (SELECT run_id, position, round, {named("step:int attempt:int")},
            {read("group", "int")} AS place, {named("question answer")},
            json_array_length({rewards}) AS rollouts, {named("passes:int source")}
            FROM event WHERE type = 'GroupIngested'),
        began AS (SELECT run_id, attempt, min(step) AS step FROM g WHERE attempt > 1 GROUP BY run_id, attempt)
        SELECT g.run_id, g.position, g.round, g.step, g.attempt, g.place, g.question,
        {text("asked")} AS prompt, g.answer, g.rollouts, g.passes,
        CAST(g.passes AS {real}) / g.rollouts AS pass_rate,
        CASE WHEN g.passes = 0 THEN 'all_failed' WHEN g.passes = g.rollouts THEN 'all_passed'
            ELSE 'contrast' END AS outcome, g.source,
        CASE WHEN EXISTS (SELECT 1 FROM began WHERE began.run_id = g.run_id AND began.attempt > g.attempt
            AND began.step <= g.step) THEN 1 ELSE 0 END AS void
        FROM g LEFT JOIN artifact asked ON asked.digest = g.question""",
        "v_step": f"""SELECT run_id, round, step, count(*) AS groups, {outcomes},
        sum(rollouts) AS rollouts, sum(passes) AS passes,
        CAST(sum(passes) AS {real}) / sum(rollouts) AS pass_rate
        FROM v_group WHERE void = 0 GROUP BY run_id, round, step""",
        "v_prompt": f"""WITH at AS (SELECT run_id, question, step, sum(rollouts) AS rollouts,
            sum(passes) AS passes FROM v_group WHERE void = 0 GROUP BY run_id, question, step),
        span AS (SELECT run_id, question, count(*) AS steps, sum(rollouts) AS rollouts, sum(passes) AS passes,
            min(step) AS first_step, max(step) AS last_step FROM at GROUP BY run_id, question)
        SELECT span.run_id, span.question, {text("asked")} AS prompt, span.steps, span.rollouts, span.passes,
        span.first_step, CAST(began.passes AS {real}) / began.rollouts AS first_pass_rate,
        span.last_step, CAST(ended.passes AS {real}) / ended.rollouts AS last_pass_rate
        FROM span
        JOIN at began ON began.run_id = span.run_id AND began.question = span.question
            AND began.step = span.first_step
        JOIN at ended ON ended.run_id = span.run_id AND ended.question = span.question
            AND ended.step = span.last_step
        LEFT JOIN artifact asked ON asked.digest = span.question""",
    }
