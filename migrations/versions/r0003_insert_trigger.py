"""SQLite's trigger before an insert says FAIL where it said ABORT.

Both refuse the row. ABORT makes SQLite keep a journal a row, to take back what the statement did before it: a
fifth of an append's time. A row of the log is a statement of its own, and an append that is refused is rolled
back as a whole.
"""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return
    op.execute("DROP TRIGGER event_no_replace")
    op.execute(
        """CREATE TRIGGER event_no_replace BEFORE INSERT ON event
    WHEN EXISTS (SELECT 1 FROM event WHERE position = NEW.position)
      OR EXISTS (SELECT 1 FROM event WHERE event_id = NEW.event_id)
      OR EXISTS (SELECT 1 FROM event WHERE run_id = NEW.run_id AND sequence = NEW.sequence)
    BEGIN SELECT RAISE(FAIL, 'UNIQUE constraint failed: event exists'); END"""
    )
