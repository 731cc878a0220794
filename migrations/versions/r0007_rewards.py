"""The view of candidates tells what its votes are, answers of the solver or a trainer's rewards, and by which
round's schedule its prompt was drawn. An event that was written before these were known has answers."""

from alembic import op

revision = "0007"
down_revision = "0006"


def _read(dialect: str, name: str, kind: str = "text") -> str:
    """A field of the payload; a flag is 1, 0 or null."""
    if dialect == "sqlite":
        return f"json_extract(payload, '$.{name}')"
    read = f"(payload::json ->> '{name}')"
    return {"int": f"{read}::integer", "flag": f"{read}::boolean::integer"}.get(kind, read)


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    kinds = {
        "stitched_cause_id": "text",
        "responses": "int",
        "first": "int",
        "second": "int",
        "label": "text",
        "verdict": "text",
        "question": "text",
        "reference": "text",
        "votes": "text",
        "invalid_reason": "text",
        "undecided": "int",
        "truth": "text",
        "label_true": "flag",
        "drawn_round": "int",
    }
    fields = ", ".join(f"{_read(dialect, name, kind)} AS {name}" for name, kind in kinds.items())
    op.execute("DROP VIEW v_candidate")
    op.execute(
        f"""CREATE VIEW v_candidate AS SELECT run_id, position, round,
        {_read(dialect, "question_id")} AS question_id, {_read(dialect, "mode")} AS mode, cause_id, {fields},
        COALESCE({_read(dialect, "votes_are")}, 'answers') AS votes_are
        FROM event WHERE type = 'CandidateScored'"""
    )
