"""`db status`: is a database one of this version, with what keeps its log append-only? Reads alone.

A name proves nothing: a trigger of the right name with `WHEN 0` refuses nothing. Triggers and keys are
compared by their definition, as the database itself tells it.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import HEAD, revision
from diagevo.private import open_to_others

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


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    ok: bool
    detail: str
    fix: str = ""
    """What to do where all is well, but could be better."""


def check(database: Database) -> list[Finding]:
    """Revision, triggers, integrity, positions and heads of a database. Nothing is changed."""
    with database.read() as connection:
        found = revision(connection)
        findings = [Finding("revision", found == HEAD, f"{found or 'none'}, this version expects {HEAD}")]
        if found is None:
            return findings
        findings.append(triggers(connection, database.dialect))
        findings.append(integrity(connection, database.dialect))
        if database.file is not None:
            findings.append(_rights(database.file))
        findings += [positions(connection), _heads(connection)]
    return findings


def triggers(connection: Connection, dialect: str) -> Finding:
    """What keeps the log append-only: triggers with their functions, and keys."""
    if different := differences(connection, dialect):
        return Finding(
            "triggers", False, f"missing, disabled or altered: {', '.join(different)}; the log can be changed"
        )
    return Finding("triggers", True, "triggers and keys are intact: the log is append-only")


def integrity(connection: Connection, dialect: str) -> Finding:
    if dialect != "sqlite":
        return Finding(
            "integrity", True, "PostgreSQL checks its pages itself; contents: diagevo memory verify"
        )
    results = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check")]
    return Finding("integrity", results == ["ok"], "; ".join(results[:3]))


def _rights(file: Path) -> Finding:
    """Who may read the file, which holds every text."""
    if not open_to_others(file):
        return Finding("rights", True, "nobody else may read it")
    return Finding("rights", True, f"others may read {file}", f"chmod go= {shlex.quote(str(file))}")


def positions(connection: Connection) -> Finding:
    """Positions of the whole database: 1 to n."""
    given = connection.exec_driver_sql("SELECT position FROM log WHERE id = 1").scalar_one_or_none()
    events = "SELECT count(*), coalesce(max(position), 0) FROM event"
    count, last = connection.exec_driver_sql(events).one()
    detail = f"{given} given, {count} there, the last at {last}"
    return Finding("positions", given == count == last, detail)


def _heads(connection: Connection) -> Finding:
    """Each run's head against its last event."""
    wrong = [
        row[0]
        for row in connection.exec_driver_sql(
            "SELECT run.run_id FROM run LEFT JOIN event ON event.run_id = run.run_id"
            " AND event.sequence = run.sequence WHERE run.sequence > 0"
            " AND (event.hash IS NULL OR event.hash <> run.hash)"
        )
    ]
    runs = connection.exec_driver_sql("SELECT count(*) FROM run WHERE sequence > 0").scalar_one()
    detail = (
        f"checked {runs}: each ends at its last event" if not wrong else f"not at the last event: {wrong}"
    )
    return Finding("heads", not wrong, detail)
