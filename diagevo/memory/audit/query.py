"""Read-only SQL over a log. Writing is refused by the database itself, not by looking at the text.

SQLite: the file is opened read-only, `query_only` is on, and an authorizer allows nothing but reading.
PostgreSQL: `query_postgres.py`.
"""

import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from diagevo.errors import ConfigError, DamagedError, StoreError
from diagevo.memory.log.database import Database, readable
from diagevo.memory.log.location import shown

VIEWS: dict[str, str] = {
    "v_round": "a committed round a row: F, its reference, ε of the next, counts, the hash of the state",
    "v_cause": "a cause a row, as of the last commit, with its node",
    "v_node": "a skill node a row; an absorbed one names its survivor",
    "v_cause_history": "a cause and round a row: state, frequency and p after that commit",
    "v_candidate": "a scored question a row: mode, aim, votes and what they are, verdict, why invalid, truth",
    "v_failure": "an observed failure a row, void ones included: question, stage, step; is its label true",
    "v_diagnosis": "a diagnosis a row: verdict, cause or description",
    "v_match": "a failure counted under a stored cause a row: by recurrence or deduplication",
    "v_promotion": "a promotion a row: mean p1, threshold, closed frequency",
    "v_reactivation": "a reactivation a row, with the promotion it undid",
    "v_question": "a scored question a row, its text and those of its causes; votes, label, truth",
    "v_trajectory": "an observed failure a row with its texts; label, truth, the cause it was counted under",
    "v_event": "an event a row, its payload as JSON text",
}
"""The stable views and what a row of each is. `run_id` is a column of every one."""

REFUSED = "the database refuses it: "
NO_ROWS = "it returns no rows"
HINT = "one statement that reads, over the views: diagevo memory query --views"
STEPS = 100_000
"""Of SQLite's machine between two looks at the keyboard: some milliseconds."""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR)
"""Errors that are the file's, and not the statement's."""
_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Column names, and rows that are fetched as they are read."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def query(database: Database, sql: str, *, run_id: str | None = None) -> Generator[Answer]:
    """Run one statement that reads; `:run` in it is the run's name. Rows stream while the context is open.

    Raises ConfigError where the database refuses the statement: a write, several statements, bad SQL.
    """
    if database.dialect == "sqlite":
        ask = _sqlite
    else:
        from diagevo.memory.audit.query_postgres import ask  # psycopg is an extra
    with ask(database, sql, run_id) as answer:
        yield answer


@contextmanager
def _sqlite(database: Database, sql: str, run_id: str | None) -> Generator[Answer]:
    assert database.file is not None
    try:
        connection = sqlite3.connect(readable(database.file), uri=True, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise StoreError(
            f"the database {shown(database.url)} cannot be read: {error}", hint="see: diagevo db check"
        ) from error
    try:
        connection.execute("PRAGMA query_only = ON")
        denied: list[int] = []

        def authorized(action: int, *_: str | None) -> int:
            if action in _ALLOWED:
                return sqlite3.SQLITE_OK
            denied.append(action)
            return sqlite3.SQLITE_DENY

        connection.set_authorizer(authorized)
        connection.set_progress_handler(_heard, STEPS)
        try:
            cursor = executed(lambda: connection.execute(sql, {"run": run_id}), sqlite3.Error)
        except ConfigError as error:
            if getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH and not denied:
                raise KeyboardInterrupt from None  # it came to `authorized`, and SQLite took it for a refusal
            raise
        yield Answer(_columns(cursor), rows_of(cursor, sqlite3.Error))
    finally:
        connection.close()


def executed(execute: Any, failure: type[Exception]) -> Any:
    """What `execute` returns. Its failure is the statement's fault; Ctrl-C is nobody's."""
    try:
        return execute()
    except (failure, ValueError) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from None  # it came to `_heard`, and SQLite put this in its place
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE:
            raise DamagedError(f"the database cannot be read: {error}") from error
        raise refused(str(error).strip()) from error


def refused(said: str) -> ConfigError:
    return ConfigError(f"{REFUSED}{said.splitlines()[0]}", hint=HINT)


def _heard() -> int:
    """Called by SQLite now and then, for Python hears Ctrl-C only in Python."""
    return 0


def _columns(cursor: Any) -> tuple[str, ...]:
    """Names of the columns. Raises ConfigError for a statement that returns none, such as COMMIT."""
    if cursor.description is None:
        raise refused(NO_ROWS)
    return tuple(d[0] for d in cursor.description)


def rows_of(rows: Iterable[tuple[Any, ...]], failure: type[Exception]) -> Iterator[tuple[Any, ...]]:
    """The rows; what fails at a later one (a cast, a division) is the statement's fault too."""
    reading = iter(rows)
    while (row := executed(lambda: next(reading, None), failure)) is not None:
        yield row


def view_columns(database: Database) -> dict[str, tuple[str, ...]]:
    """The columns of each stable view, as the database has them."""
    found: dict[str, tuple[str, ...]] = {}
    for view in VIEWS:
        with query(database, f"SELECT * FROM {view} WHERE 1 = 0") as answer:
            found[view] = answer.columns
    return found
