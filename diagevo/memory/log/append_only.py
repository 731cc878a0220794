"""What keeps the table of events append-only, compared with what the migrations make.

A name proves nothing: a trigger of the right name with `WHEN 0` refuses nothing. What is compared is the
definition, as the database itself tells it.
"""

from collections.abc import Mapping

from sqlalchemy import Connection

SQLITE: Mapping[str, str] = {
    "event_no_update": "CREATE TRIGGER event_no_update BEFORE UPDATE ON event"
    " BEGIN SELECT RAISE(ABORT, 'event is append-only'); END",
    "event_no_delete": "CREATE TRIGGER event_no_delete BEFORE DELETE ON event"
    " BEGIN SELECT RAISE(ABORT, 'event is append-only'); END",
    "event_no_replace": "CREATE TRIGGER event_no_replace BEFORE INSERT ON event"
    " WHEN EXISTS (SELECT 1 FROM event WHERE position = NEW.position)"
    " OR EXISTS (SELECT 1 FROM event WHERE run_id = NEW.run_id AND event_id = NEW.event_id)"
    " OR EXISTS (SELECT 1 FROM event WHERE run_id = NEW.run_id AND sequence = NEW.sequence)"
    " BEGIN SELECT RAISE(FAIL, 'UNIQUE constraint failed: event exists'); END",
    "the primary key (position)": "position",
    "the unique key (run_id, event_id)": "run_id, event_id",
    "the unique key (run_id, sequence)": "run_id, sequence",
}
"""By name: the SQL of a trigger, its white space evened; the columns of a key."""

_REFUSES = "EXECUTE FUNCTION event_append_only() always: BEGIN RAISE EXCEPTION 'event is append-only'; END"
POSTGRES: Mapping[str, str] = {
    "event_no_update": "CREATE TRIGGER event_no_update BEFORE DELETE OR UPDATE ON event"
    f" FOR EACH ROW {_REFUSES}",
    "event_no_truncate": "CREATE TRIGGER event_no_truncate BEFORE TRUNCATE ON event"
    f" FOR EACH STATEMENT {_REFUSES}",
    "the primary key (position)": 'PRIMARY KEY ("position")',
    "the unique key (run_id, event_id)": "UNIQUE (run_id, event_id)",
    "the unique key (run_id, sequence)": "UNIQUE (run_id, sequence)",
}
"""By name: the definition of a trigger with its function's source, and that of a key."""

_POSTGRES = """
SELECT tgname, format('%%s %%s: %%s', pg_get_triggerdef(t.oid, true),
    CASE WHEN tgenabled <> 'A' THEN 'not always' WHEN lanname <> 'plpgsql' THEN 'as ' || lanname
    WHEN pronamespace <> relnamespace THEN 'from another schema' ELSE 'always' END, prosrc)
FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid JOIN pg_proc p ON p.oid = tgfoid
    JOIN pg_language l ON l.oid = prolang
WHERE tgrelid = 'event'::regclass AND NOT tgisinternal
UNION ALL SELECT 'the ' || CASE contype WHEN 'p' THEN 'primary' ELSE 'unique' END || ' key '
    || replace(substring(pg_get_constraintdef(oid) FROM '\\(.*\\)'), '"', ''), pg_get_constraintdef(oid)
FROM pg_constraint WHERE conrelid = 'event'::regclass AND contype IN ('p', 'u')
UNION ALL SELECT 'the rule ' || rulename, pg_get_ruledef(oid)
FROM pg_rewrite WHERE ev_class = 'event'::regclass
UNION ALL SELECT 'row-level security', 'on'
FROM pg_class WHERE oid = 'event'::regclass AND relrowsecurity
UNION ALL SELECT 'the inheriting table ' || inhrelid::regclass, 'inherits'
FROM pg_inherits WHERE inhparent = 'event'::regclass
"""


def differences(connection: Connection, dialect: str) -> list[str]:
    """What is missing, off or not as the migrations make it, and what stands there beside it; by name."""
    if dialect == "sqlite":
        wanted, found = SQLITE, _sqlite(connection)
    else:
        wanted = POSTGRES
        found = {name: " ".join(sql.split()) for name, sql in connection.exec_driver_sql(_POSTGRES)}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def _sqlite(connection: Connection) -> dict[str, str]:
    triggers = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = 'event'"
    found = {name: " ".join(sql.split()) for name, sql in connection.exec_driver_sql(triggers)}
    keys = [
        ("primary", _columns(connection, "SELECT name FROM pragma_table_info('event') WHERE pk ORDER BY pk"))
    ]
    unique = "SELECT name FROM pragma_index_list('event') WHERE \"unique\" AND NOT partial AND origin = 'u'"
    keys += [
        ("unique", _columns(connection, f"SELECT name FROM pragma_index_info('{index}') ORDER BY seqno"))
        for (index,) in connection.exec_driver_sql(unique).all()
    ]
    return found | {f"the {kind} key ({columns})": columns for kind, columns in keys if columns}


def _columns(connection: Connection, query: str) -> str:
    return ", ".join(name for (name,) in connection.exec_driver_sql(query))
