"""Steps, tags and causes added up as they are written, and the views.

Projections are made again after an upgrade, from the log.
"""

import json
from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    texts = Path(__file__).with_name("views_0003.json").read_text(encoding="utf-8")
    made = json.loads(texts)[op.get_bind().dialect.name]
    for name in reversed(made):
        op.execute(f"DROP VIEW IF EXISTS {name}")
    counts = ("failures", "questions", "responses", "first", "aimed", "aimed_kept", "aimed_valid")
    for name in counts:
        op.add_column("cause_history", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    op.add_column("cause_history", sa.Column("agreement", sa.Text))
    op.add_column("round_summary", sa.Column("right_against_false", sa.Integer))
    for name in ("with_cause", "questions_with_cause"):
        op.add_column("round_summary", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    numbers = ("groups", "all_passed", "contrast", "all_failed", "rollouts", "passes")
    op.create_table(
        "ingested_sum",
        sa.Column("run_id", sa.Text, nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False, autoincrement=False) for name in ("batch", "step")),
        sa.Column("tag", sa.Text, nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False) for name in numbers),
        sa.PrimaryKeyConstraint("run_id", "batch", "step", "tag"),
        sqlite_strict=True,
    )
    # In the order of its key, a run's prompts are read one after the other.
    op.drop_table("ingested_prompt")
    steps = ("steps", "rollouts", "passes", "unanswered", "first_step", "first_rollouts", "first_passes")
    steps = (*steps, "last_step", "last_rollouts", "last_passes", "explained")
    op.create_table(
        "ingested_prompt",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False) for name in steps),
        sa.PrimaryKeyConstraint("run_id", "question"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    for name, query in made.items():
        op.execute(f"CREATE VIEW {name} AS {query}")
