"""`db status`: does a database have this version's revision, and the triggers and keys that keep its log
append-only? Read-only. A name proves nothing: a trigger of the right name with `WHEN 0` refuses nothing. The
schema, as the database itself reports it, is compared with what the migrations make.
"""

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import HEAD, declared, revision, shape
from diagevo.private import open_to_others

_REFUSES = "EXECUTE FUNCTION event_append_only() always: BEGIN RAISE EXCEPTION 'event is append-only'; END"
POSTGRES: Mapping[str, str] = {
    "trigger event_no_update on event": "CREATE TRIGGER event_no_update BEFORE DELETE OR UPDATE ON event"
    f" FOR EACH ROW {_REFUSES}",
    "trigger event_no_truncate on event": "CREATE TRIGGER event_no_truncate BEFORE TRUNCATE ON event"
    f" FOR EACH STATEMENT {_REFUSES}",
    "the primary key (position) of event": 'PRIMARY KEY ("position")',
    "the unique key (run_id, event_id) of event": "UNIQUE (run_id, event_id)",
    "the unique key (run_id, sequence) of event": "UNIQUE (run_id, sequence)",
}
"""What keeps `event` append-only, as PostgreSQL tells it: the definition of a trigger with its function's
source, and that of a key. Of anything else the name is compared, with those that the migrations make."""

_POSTGRES = """
WITH ours AS (SELECT oid, relname, relkind, relrowsecurity, relnamespace FROM pg_class c
    WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'event'::regclass)
    AND NOT EXISTS (SELECT 1 FROM pg_depend d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))
SELECT format('trigger %%s on %%s', tgname, relname), format('%%s %%s: %%s', pg_get_triggerdef(t.oid, true),
    CASE WHEN tgenabled <> 'A' THEN 'not always' WHEN lanname <> 'plpgsql' THEN 'as ' || lanname
    WHEN pronamespace <> relnamespace THEN 'from another schema' ELSE 'always' END, prosrc)
FROM pg_trigger t JOIN ours ON ours.oid = tgrelid JOIN pg_proc p ON p.oid = tgfoid
    JOIN pg_language l ON l.oid = prolang WHERE NOT tgisinternal
UNION ALL SELECT format('the %%s key %%s of %%s', CASE contype WHEN 'p' THEN 'primary' ELSE 'unique' END,
    replace(substring(pg_get_constraintdef(k.oid) FROM '\\(.*\\)'), '"', ''), relname),
    pg_get_constraintdef(k.oid)
FROM pg_constraint k JOIN ours ON ours.oid = conrelid
WHERE contype = 'u' OR contype = 'p' AND relname = 'event'
UNION ALL SELECT format('constraint %%s on %%s', conname, relname), ''
FROM pg_constraint JOIN ours ON ours.oid = conrelid WHERE contype IN ('c', 'f', 'x')
UNION ALL SELECT format('rule %%s on %%s', rulename, relname), ''
FROM pg_rewrite JOIN ours ON ours.oid = ev_class WHERE rulename <> '_RETURN'
UNION ALL SELECT format('policy %%s on %%s', polname, relname), ''
FROM pg_policy JOIN ours ON ours.oid = polrelid
UNION ALL SELECT format('row-level security on %%s', relname), '' FROM ours WHERE relrowsecurity
UNION ALL SELECT format('table %%s inherits %%s', inhrelid::regclass, relname), ''
FROM pg_inherits JOIN ours ON ours.oid = inhparent
UNION ALL SELECT format('index %%s on %%s', c.relname, ours.relname), ''
FROM pg_index JOIN ours ON ours.oid = indrelid JOIN pg_class c ON c.oid = indexrelid
WHERE NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid)
UNION ALL SELECT format('%%s %%s', CASE relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
    WHEN 'S' THEN 'sequence' ELSE 'table' END, relname), ''
FROM ours WHERE relkind IN ('r', 'p', 'f', 'v', 'm', 'S')
"""

_FOREIGN = re.compile(r"FOREIGN KEY\((\w+)\)")

MADE: Mapping[str, str] = {
    "sqlite": "f2ce2cba6300177e509706c1b3da198002abb4a21898e2e5d5fe60200c049abc",
    "postgresql": "16f2e750bbf9e8b84c287660a0d2e9c33e717d0b8cd87746683515cd6acfe7ec",
}
"""SHA-256 of what the migrations make: a database that has it need not be compared with one that is made. It
decides nothing, as what has another is compared; a test holds these against the migrations."""


def differences(connection: Connection, dialect: str) -> list[str]:
    """What is missing, differs from the migrations, or was made by none of them; by name."""
    found = found_in(connection, dialect)
    if digest(found) == MADE[dialect]:
        return []
    wanted = declared() if dialect == "sqlite" else _wanted_of_postgres()
    return [
        f"{name} is missing"
        if name not in found
        else f"{name} is of no migration: drop it"
        if name not in wanted
        else f"{name} is not as the migrations make it"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]


def _wanted_of_postgres() -> dict[str, str]:
    """The names from the migrations, as on SQLite, and the definitions that keep the log append-only."""
    names = [name for name in declared() if not name.startswith("trigger")]
    for name, sql in declared().items():  # SQLite does not name foreign keys; PostgreSQL does, by column
        table = name.removeprefix("table ")
        names += [f"constraint {table}_{column}_fkey on {table}" for column in _FOREIGN.findall(sql)]
    return dict.fromkeys(names, "") | dict(POSTGRES)


def found_in(connection: Connection, dialect: str) -> dict[str, str]:
    """Everything declared in a database, by kind and name."""
    if dialect == "sqlite":
        return shape(connection)
    return {name: " ".join(sql.split()) for name, sql in connection.exec_driver_sql(_POSTGRES)}


def digest(found: Mapping[str, str]) -> str:
    """Of what is declared."""
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its result."""

    check: str
    ok: bool
    detail: str
    fix: str = ""
    """An improvement to suggest if the check passed."""


def check(database: Database) -> list[Finding]:
    """Revision, schema, integrity, positions and heads of a database. Nothing is changed."""
    with database.read() as connection:
        found = revision(connection)
        findings = [Finding("revision", found == HEAD, f"{found or 'none'}, this version expects {HEAD}")]
        if found is None:
            return findings
        if found == HEAD:
            findings.append(_schema(connection, database.dialect))
        findings.append(integrity(connection, database.dialect))
        if database.file is not None:
            findings.append(_rights(database.file))
        findings += [positions(connection), _heads(connection)]
    return findings


def _schema(connection: Connection, dialect: str) -> Finding:
    """Tables, views, indexes, triggers with their functions, and keys."""
    if different := differences(connection, dialect):
        return Finding("schema", False, "; ".join(different))
    return Finding("schema", True, "as the migrations make it, triggers and keys too: the log is append-only")


def integrity(connection: Connection, dialect: str) -> Finding:
    if dialect != "sqlite":
        return Finding(
            "integrity", True, "PostgreSQL checks its pages itself; contents: diagevo memory verify"
        )
    results = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check")]
    return Finding("integrity", results == ["ok"], "; ".join(results[:3]))


def _rights(file: Path) -> Finding:
    """Who may read the file, which contains every text."""
    if not open_to_others(file):
        return Finding("rights", True, "nobody else may read it")
    return Finding("rights", True, f"others may read {file}", f"chmod go= {shlex.quote(str(file))}")


def positions(connection: Connection) -> Finding:
    """Positions of the whole database: 1 to n."""
    rows = [tuple(row) for row in connection.exec_driver_sql("SELECT id, position FROM log ORDER BY id")]
    given = dict(rows).get(1)
    events = "SELECT count(*), coalesce(max(position), 0) FROM event"
    count, last = connection.exec_driver_sql(events).one()
    detail = f"{given} given, {count} there, the last at {last}"
    if len(rows) > 1:
        detail += f"; log has {len(rows)} rows, not one"
    return Finding("positions", rows == [(1, count)] and count == last, detail)


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
