"""Views of another trainer's rollouts: a group and a step a row, with what passed."""

from alembic import op

revision = "0011"
down_revision = "0010"


def _read(dialect: str, name: str, kind: str = "text") -> str:
    if dialect == "sqlite":
        return f"json_extract(payload, '$.{name}')"
    read = f"(payload::json ->> '{name}')"
    return f"{read}::integer" if kind == "int" else read


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    sqlite = dialect == "sqlite"
    rewards = "payload, '$.rewards'" if sqlite else "payload::json -> 'rewards'"
    text = "CAST(asked.content AS TEXT)" if sqlite else "convert_from(asked.content, 'UTF8')"
    real = "REAL" if sqlite else "double precision"
    attempt = f"coalesce({_read(dialect, 'attempt', 'int')}, 1)"
    op.execute(
        f"""CREATE VIEW v_group AS
        WITH g AS (SELECT run_id, position, round, {_read(dialect, "step", "int")} AS step,
            {attempt} AS attempt, {_read(dialect, "group", "int")} AS place,
            {_read(dialect, "question")} AS question, {_read(dialect, "answer")} AS answer,
            json_array_length({rewards}) AS rollouts, {_read(dialect, "passes", "int")} AS passes,
            {_read(dialect, "source")} AS source FROM event WHERE type = 'GroupIngested'),
        began AS (SELECT run_id, attempt, min(step) AS step FROM g WHERE attempt > 1 GROUP BY run_id, attempt)
        SELECT g.run_id, g.position, g.round, g.step, g.attempt, g.place, g.question, {text} AS prompt,
        g.answer, g.rollouts, g.passes, CAST(g.passes AS {real}) / g.rollouts AS pass_rate,
        CASE WHEN g.passes = 0 THEN 'all_failed' WHEN g.passes = g.rollouts THEN 'all_passed'
            ELSE 'contrast' END AS outcome, g.source,
        CASE WHEN EXISTS (SELECT 1 FROM began WHERE began.run_id = g.run_id AND began.attempt > g.attempt
            AND began.step <= g.step) THEN 1 ELSE 0 END AS void
        FROM g LEFT JOIN artifact asked ON asked.digest = g.question"""
    )
    counts = ", ".join(
        f"sum(CASE WHEN outcome = '{name}' THEN 1 ELSE 0 END) AS {name}"
        for name in ("all_passed", "contrast", "all_failed")
    )
    op.execute(
        f"""CREATE VIEW v_step AS SELECT run_id, round, step, count(*) AS groups, {counts},
        sum(rollouts) AS rollouts, sum(passes) AS passes,
        CAST(sum(passes) AS {real}) / sum(rollouts) AS pass_rate
        FROM v_group WHERE void = 0 GROUP BY run_id, round, step"""
    )
