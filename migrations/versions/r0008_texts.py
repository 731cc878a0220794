"""Two views with the texts in them: what was asked and what failed, its votes, truth and causes in words."""

from alembic import op

revision = "0008"
down_revision = "0007"


def _text(dialect: str, artifact: str) -> str:
    """An artifact's content as text."""
    return (
        f"CAST({artifact}.content AS TEXT)"
        if dialect == "sqlite"
        else f"convert_from({artifact}.content, 'UTF8')"
    )


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    created = (
        "json_extract(payload, '$.failure_id')" if dialect == "sqlite" else "(payload::json ->> 'failure_id')"
    )
    op.execute(
        f"""CREATE VIEW v_question AS SELECT c.run_id, c.position, c.round, c.question_id, c.mode,
        c.cause_id, aim.description AS cause, c.stitched_cause_id, beside.description AS stitched_cause,
        {_text(dialect, "asked")} AS text, c.votes, c.votes_are, c.responses, c.first, c.second, c.label,
        c.truth, c.label_true, c.verdict, c.invalid_reason
        FROM v_candidate c
        LEFT JOIN artifact asked ON asked.digest = c.question
        LEFT JOIN cause aim ON aim.run_id = c.run_id AND aim.cause_id = c.cause_id
        LEFT JOIN cause beside ON beside.run_id = c.run_id AND beside.cause_id = c.stitched_cause_id"""
    )
    op.execute(
        f"""CREATE VIEW v_trajectory AS SELECT f.run_id, f.position, f.round, f.failure_id, f.attempt,
        f.question_id, {_text(dialect, "asked")} AS question, {_text(dialect, "failed")} AS trajectory,
        {_text(dialect, "agreed")} AS reference, c.label, c.truth, f.label_true, f.right_answer,
        counted.via, counted.cause_id, cause.description AS cause
        FROM (SELECT v_failure.*, max(attempt) OVER (PARTITION BY run_id, round, failure_id) AS last
            FROM v_failure) f
        LEFT JOIN v_candidate c ON c.run_id = f.run_id AND c.round = f.round AND c.question_id = f.question_id
        LEFT JOIN (SELECT run_id, round, failure_id, via, cause_id FROM v_match
            UNION ALL SELECT run_id, round, {created}, 'new cause', cause_id FROM event
            WHERE type = 'CauseCreated') counted ON counted.run_id = f.run_id AND counted.round = f.round
            AND counted.failure_id = f.failure_id AND f.attempt = f.last
        LEFT JOIN cause ON cause.run_id = f.run_id AND cause.cause_id = counted.cause_id
        LEFT JOIN artifact asked ON asked.digest = c.question
        LEFT JOIN artifact failed ON failed.digest = f.trajectory
        LEFT JOIN artifact agreed ON agreed.digest = f.reference"""
    )
