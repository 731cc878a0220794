"""`db status`: is a database one of this version, with what keeps its log append-only? Reads alone."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from diagevo.memory.log import append_only
from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import HEAD, revision
from diagevo.private import open_to_others


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
        findings += _counts(connection)
    return findings


def triggers(connection: Connection, dialect: str) -> Finding:
    """What keeps the log append-only: triggers with their functions, and keys."""
    if different := append_only.differences(connection, dialect):
        return Finding(
            "triggers", False, f"missing, disabled or altered: {', '.join(different)}; the log can be changed"
        )
    return Finding("triggers", True, "triggers and keys are intact: the log is append-only")


def integrity(connection: Connection, dialect: str) -> Finding:
    if dialect != "sqlite":
        return Finding(
            "integrity", True, "PostgreSQL checks its pages itself; contents: diagevo memory verify"
        )
    said = [row[0] for row in connection.exec_driver_sql("PRAGMA integrity_check")]
    return Finding("integrity", said == ["ok"], "; ".join(said[:3]))


def _rights(file: Path) -> Finding:
    """Who may read the file, which holds every text."""
    if not open_to_others(file):
        return Finding("rights", True, "nobody else may read it")
    return Finding("rights", True, f"others may read {file}", f"chmod go= {shlex.quote(str(file))}")


def _counts(connection: Connection) -> Iterator[Finding]:
    def scalar(sql: str) -> Any:
        return connection.exec_driver_sql(sql).scalar_one()

    given = scalar("SELECT position FROM log")
    count, last = scalar("SELECT count(*) FROM event"), scalar("SELECT coalesce(max(position), 0) FROM event")
    detail = f"{given} given, {count} there, the last at {last}"
    yield Finding("positions", given == count == last, detail)
    wrong = [
        row[0]
        for row in connection.exec_driver_sql(
            "SELECT run.run_id FROM run LEFT JOIN event ON event.run_id = run.run_id"
            " AND event.sequence = run.sequence WHERE run.sequence > 0"
            " AND (event.hash IS NULL OR event.hash <> run.hash)"
        )
    ]
    runs = scalar("SELECT count(*) FROM run WHERE sequence > 0")
    detail = (
        f"checked {runs}: each ends at its last event" if not wrong else f"not at the last event: {wrong}"
    )
    yield Finding("heads", not wrong, detail)
