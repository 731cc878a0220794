"""PostgreSQL: the log's triggers fire for replicas too.

`session_replication_role = replica` passes over a trigger that is not ENABLE ALWAYS.
"""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute("ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_update")
    op.execute("ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_truncate")
