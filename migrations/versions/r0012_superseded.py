"""The view of rounds tells which count no more, and a view of its own tells since when and why."""

from alembic import op

revision = "0012"
down_revision = "0011"


def _read(dialect: str, name: str, *, number: bool = False) -> str:
    """A field of the payload."""
    if dialect == "sqlite":
        return f"json_extract(payload, '$.{name}')"
    read = f"(payload::json ->> '{name}')"
    return f"{read}::integer" if number else read


def upgrade() -> None:
    dialect = op.get_bind().dialect.name
    first, last = (_read(dialect, name, number=True) for name in ("first", "last"))
    op.execute(
        f"""CREATE VIEW v_superseded AS SELECT run_id, position, {first} AS first, {last} AS last,
        {_read(dialect, "reason")} AS reason FROM event WHERE type = 'RoundsSuperseded'"""
    )
    op.execute("DROP VIEW v_round")
    op.execute(
        """CREATE VIEW v_round AS SELECT r.*, (SELECT min(s.position) FROM v_superseded s
        WHERE s.run_id = r.run_id AND r.round BETWEEN s.first AND s.last) AS superseded_at
        FROM round_summary r"""
    )
