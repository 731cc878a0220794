"""Failures that somebody assigned to a cause, and views that count them there."""

import json
from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def _views(of: str) -> dict[str, str]:
    texts = Path(__file__).with_name(f"views_{of}.json").read_text(encoding="utf-8")
    return json.loads(texts)[op.get_bind().dialect.name]


def upgrade() -> None:
    for name in reversed(_views(down_revision)):  # no table changes under a view that reads it
        op.execute(f"DROP VIEW IF EXISTS {name}")
    op.create_table(
        "moved_failure",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column(
            "position",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            nullable=False,
            autoincrement=False,
        ),
        sa.Column("round", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("question_id", "failure_id", "cause_id")),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "position"),
        sqlite_strict=True,
    )
    for name, query in _views(revision).items():
        op.execute(f"CREATE VIEW {name} AS {query}")
