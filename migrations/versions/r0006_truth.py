"""The views of candidates and failures tell why a question is invalid, and what the truth says of labels and
failures. An event that was written before a field was known has null there."""

from alembic import op

revision = "0006"
down_revision = "0005"


def _read(dialect: str, name: str, kind: str = "text", payload: str = "payload") -> str:
    """A field of the payload; a flag is 1, 0 or null."""
    if dialect == "sqlite":
        return f"json_extract({payload}, '$.{name}')"
    read = f"({payload}::json ->> '{name}')"
    return {"int": f"{read}::integer", "flag": f"{read}::boolean::integer"}.get(kind, read)


def _fields(dialect: str, **kinds: str) -> str:
    return ", ".join(f"{_read(dialect, name, kind)} AS {name}" for name, kind in kinds.items())


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    candidate = _fields(
        dialect,
        stitched_cause_id="text",
        responses="int",
        first="int",
        second="int",
        label="text",
        verdict="text",
        question="text",
        reference="text",
        votes="text",
        invalid_reason="text",
        undecided="int",
        truth="text",
        label_true="flag",
    )
    failure = _fields(
        dialect,
        failure_id="text",
        question_id="text",
        stage="text",
        attempt="int",
        step="int",
        trajectory="text",
        reference="text",
    )
    asked = _read(dialect, "label_true", "flag", "asked.payload")
    right = _read(dialect, "right", "flag")
    op.execute("DROP VIEW v_candidate")
    op.execute("DROP VIEW v_failure")
    op.execute(
        f"""CREATE VIEW v_candidate AS SELECT run_id, position, round,
        {_fields(dialect, question_id="text", mode="text")}, cause_id, {candidate}
        FROM event WHERE type = 'CandidateScored'"""
    )
    op.execute(
        f"""CREATE VIEW v_failure AS SELECT run_id, position, round, {failure}, {right} AS right_answer,
        (SELECT {asked} FROM event asked WHERE asked.event_id = event.causation_id) AS label_true
        FROM event WHERE type = 'FailureObserved'"""
    )
