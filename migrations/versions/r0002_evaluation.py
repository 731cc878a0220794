"""Evaluations with a row a question, and the oracle's answers."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "evaluation",
        sa.Column("evaluation_id", sa.String, primary_key=True),
        sa.Column("run_id", sa.String),
        sa.Column("round", sa.Integer),
        sa.Column("benchmark", sa.String, nullable=False),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("conditions", sa.Text, nullable=False),
        sa.Column("questions", sa.Integer, nullable=False),
        sa.Column("metrics", sa.Text),
        sa.Column("began_at", sa.String, nullable=False),
        sa.Column("finished_at", sa.String),
    )
    op.create_index("ix_evaluation_run_round", "evaluation", ["run_id", "round"])
    op.create_table(
        "evaluation_result",
        sa.Column("evaluation_id", sa.String, sa.ForeignKey("evaluation.evaluation_id"), primary_key=True),
        sa.Column("question", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("category", sa.String),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("prompt", sa.Text, nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
        sa.Column("responses", sa.Text, nullable=False),
        sa.Column("truncated", sa.Text, nullable=False),
        sa.Column("extracted", sa.Text, nullable=False),
        sa.Column("by_rule", sa.Text, nullable=False),
        sa.Column("judged", sa.Text),
        sa.Column("judge", sa.String),
        sa.Column("correct", sa.Text),
        sa.Column("score", sa.Float),
    )
    op.create_table(
        "oracle",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("question_id", sa.String, primary_key=True),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("label", sa.String, nullable=False),
        sa.Column("proposed", sa.String),
        sa.Column("votes", sa.String),
        sa.Column("proposer", sa.String),
        sa.Column("answer", sa.String),
        sa.Column("source", sa.String),
        sa.Column("note", sa.String),
    )
