"""PostgreSQL: the log's triggers fire for replicas too, and `memory query` reads through two functions.

`session_replication_role = replica` passes over a trigger that is not ENABLE ALWAYS.

A statement that somebody asks is opened and fetched inside SECURITY DEFINER functions, since there alone it
cannot take another role: PostgreSQL refuses `set_config('role', …)` within one, and lets it undo SET LOCAL
ROLE. They belong to the role `diagevo_reader` where one can be made (`diagevo.memory.log.reader`).
"""

from alembic import op

revision = "0004"
down_revision = "0003"

STATEMENTS = (
    "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_update",
    "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_truncate",
    """CREATE FUNCTION diagevo_open(statement text, run text) RETURNS refcursor
    LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE rows refcursor := 'diagevo_rows';
    BEGIN OPEN rows NO SCROLL FOR EXECUTE statement USING run; RETURN rows; END $$""",
    """CREATE FUNCTION diagevo_page(rows refcursor, size integer) RETURNS SETOF record
    LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE one record;
    BEGIN FOR number IN 1..size LOOP FETCH rows INTO one; EXIT WHEN NOT FOUND; RETURN NEXT one; END LOOP;
    END $$""",
    "REVOKE ALL ON FUNCTION diagevo_open(text, text), diagevo_page(refcursor, integer) FROM PUBLIC",
)


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for statement in STATEMENTS:
        op.execute(statement)
