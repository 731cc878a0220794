"""Read-only SQL over a log. Writing is refused by the database itself, not by looking at the text.

SQLite: the file is opened read-only, `query_only` is on, and an authorizer allows nothing but reading.
PostgreSQL: a READ ONLY transaction whose mode can no longer be changed, and one statement by the extended
protocol.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.database import Database, readable
from diagevo.memory.location import shown

VIEWS: dict[str, str] = {
    "v_round": "a committed round a row: F, its reference, ε of the next, counts, the hash of the state",
    "v_cause": "a cause a row, as of the last commit, with its node",
    "v_node": "a skill node a row; an absorbed one names its survivor",
    "v_cause_history": "a cause and round a row: state, frequency and p after that commit",
    "v_candidate": "a scored question a row: mode, aim, votes in figures, verdict",
    "v_failure": "an observed failure a row, void ones included: question, stage, attempt, step",
    "v_diagnosis": "a diagnosis a row: verdict, cause or description",
    "v_match": "a failure counted under a stored cause a row: by recurrence or deduplication",
    "v_promotion": "a promotion a row: mean p1, threshold, closed frequency",
    "v_reactivation": "a reactivation a row, with the promotion it undid",
    "v_event": "an event a row, its payload as JSON text",
}
"""The stable views and what a row of each is. `run_id` is a column of every one."""

RUN = re.compile(r"(?<![:\w]):run\b")
NO_ROWS = "the database refuses it: it returns no rows"
_HINT = "one statement that reads, over the views: diagevo memory query --views"
_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Column names, and rows that are fetched as they are read."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def query(database: Database, sql: str, *, run_id: str | None = None) -> Iterator[Answer]:
    """Run one statement that reads; `:run` in it is the run's name. Rows stream while the context is open.

    Raises ConfigError where the database refuses the statement: a write, several statements, bad SQL.
    """
    runner = _sqlite if database.dialect == "sqlite" else _postgres
    with runner(database, sql, run_id) as answer:
        yield answer


@contextmanager
def _sqlite(database: Database, sql: str, run_id: str | None) -> Iterator[Answer]:
    assert database.file is not None
    try:
        connection = sqlite3.connect(readable(database.file), uri=True, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise StoreError(f"the database {shown(database.url)} cannot be read: {error}") from error
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
        )
        cursor = _executed(lambda: connection.execute(sql, {"run": run_id}), sqlite3.Error)
        yield Answer(_columns(cursor), _read(cursor, sqlite3.Error))
    finally:
        connection.close()


@contextmanager
def _postgres(database: Database, sql: str, run_id: str | None) -> Iterator[Answer]:
    import psycopg

    with database.engine.connect() as pooled:
        connection: Any = pooled.connection.driver_connection
        connection.rollback()
        try:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute("SELECT 1")  # from here on the transaction's mode is fixed
                columns = _described(connection.pgconn, sql)
                text, values = RUN.sub("%(run)s", sql.replace("%", "%%")), {"run": run_id}
                # Several statements in one text need the simple protocol; both of these use the extended one.
                if not columns:  # a write is refused here, by the database; what is not ends its session
                    _executed(lambda: cursor.execute(text, values, prepare=True), psycopg.Error)
                    pooled.invalidate()
                    raise ConfigError(NO_ROWS, hint=_HINT)
                rows = cursor.stream(text, values)
                with closing(rows):  # asks the server to stop where not all were read
                    first = _executed(lambda: next(rows, None), psycopg.Error)
                    yield Answer(columns, _read([] if first is None else chain([first], rows), psycopg.Error))
        finally:
            if not connection.closed:
                connection.rollback()


def _described(connection: Any, sql: str) -> tuple[str, ...]:
    """Names of the columns, from libpq, without running the statement; none where it returns no rows."""
    from psycopg.pq import ExecStatus

    prepared = connection.prepare(b"", RUN.sub("$1", sql).encode())
    if prepared.status != ExecStatus.COMMAND_OK:
        text = prepared.error_message.decode(errors="replace").strip().splitlines()[0]
        raise ConfigError(f"the database refuses it: {text.removeprefix('ERROR:').strip()}", hint=_HINT)
    found = connection.describe_prepared(b"")
    return tuple(found.fname(i).decode() for i in range(found.nfields))


def _executed(execute: Any, failure: type[Exception]) -> Any:
    try:
        return execute()
    except (failure, ValueError) as error:
        text = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"the database refuses it: {text}",
            hint=_HINT,
        ) from error


def _columns(cursor: Any) -> tuple[str, ...]:
    """Names of the columns. Raises ConfigError for a statement that returns none, such as COMMIT."""
    if cursor.description is None:
        raise ConfigError(NO_ROWS, hint=_HINT)
    return tuple(d[0] for d in cursor.description)


def _read(rows: Iterable[tuple[Any, ...]], failure: type[Exception]) -> Iterator[tuple[Any, ...]]:
    """The rows; what fails at a later one (a cast, a division) is the statement's fault too."""
    reading = iter(rows)
    while (row := _executed(lambda: next(reading, None), failure)) is not None:
        yield row


def view_columns(database: Database) -> dict[str, tuple[str, ...]]:
    """The columns of each stable view, as the database has them."""
    found = {}
    for view in VIEWS:
        with query(database, f"SELECT * FROM {view} WHERE 1 = 0") as answer:
            found[view] = answer.columns
    return found
