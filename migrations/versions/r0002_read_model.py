"""The projections that the views read."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

LONG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
REAL = sa.Float().with_variant(sa.REAL, "sqlite")
BEFORE = """
v_prompt v_step v_group v_trajectory v_question v_reactivation v_promotion v_match v_diagnosis v_failure
v_candidate v_cause_history v_round v_superseded v_node v_cause v_event
"""
"""The views of the first revision, each before those that it reads."""


def upgrade() -> None:
    for name in BEFORE.split():
        op.execute(f"DROP VIEW IF EXISTS {name}")
    op.drop_table("round_summary")
    _create(
        "round_summary",
        _text("run_id"),
        _integer("round"),
        _long("first_sequence", "last_sequence", "position"),
        _integer("failures"),
        _integer("reference_round", "reference_failures", null=True),
        _text("epsilon_next"),
        [sa.Column("epsilon_next_value", REAL, nullable=False)],
        _integer("active", "mastered", "nodes", "candidates", "kept"),
        _integer("too_easy", "too_hard", "contested", "no_label", "invalid"),
        _text("invalid_reasons"),
        _integer("responses", "answers", "rollouts", "passes", "undecided", "labels_judged", "labels_true"),
        _integer("observed", "against_answers", "failures_judged", "against_false_labels"),
        _integer("right_answers", null=True),
        _integer("promoted", "reactivated", "created"),
        _text("promoted_causes", "reactivated_causes", "state_hash", "committed_at"),
        key=("run_id", "round"),
    )
    _create(
        "opened_round",
        _text("run_id"),
        _integer("round", "batch"),
        _long("position"),
        _integer("superseded_by", null=True),
        [sa.Column("superseded_at", LONG, nullable=True)],
        key=("run_id", "round"),
    )
    counts = sa.text("superseded_by IS NULL")
    op.create_index(
        "ix_opened_round_batch",
        "opened_round",
        ["run_id", "batch"],
        unique=True,
        sqlite_where=counts,
        postgresql_where=counts,
    )
    _create(
        "ingested_group",
        _long("position"),
        _text("run_id"),
        _integer("batch", "step", "attempt", "place"),
        _text("question"),
        _integer("rollouts", "passes"),
        _text("tags"),
        key=("position",),
    )
    op.create_index("ix_ingested_group_run", "ingested_group", ["run_id"])
    _create(
        "ingested_prompt",
        _text("run_id", "question"),
        _long("position"),
        _integer("steps", "rollouts", "passes", "unanswered"),
        _integer("first_step", "first_rollouts", "first_passes"),
        _integer("last_step", "last_rollouts", "last_passes", "explained"),
        key=("run_id", "question"),
    )
    _create(
        "cause_question",
        _text("run_id"),
        _integer("round"),
        _text("question_id", "cause_id", "question"),
        _integer("responses", "first", "failures"),
        key=("run_id", "round", "question_id", "cause_id"),
    )


Columns = list[sa.Column]


def _create(name: str, *parts: Columns, key: tuple[str, ...]) -> None:
    columns = (column for part in parts for column in part)
    op.create_table(name, *columns, sa.PrimaryKeyConstraint(*key), sqlite_strict=True)


def _text(*names: str) -> Columns:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _integer(*names: str, null: bool = False) -> Columns:
    return [sa.Column(name, sa.Integer, nullable=null, autoincrement=False) for name in names]


def _long(*names: str) -> Columns:
    return [sa.Column(name, LONG, nullable=False, autoincrement=False) for name in names]
