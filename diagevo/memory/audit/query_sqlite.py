"""`memory query` on SQLite: the file is opened read-only, `query_only` is on, and an authorizer allows
reading, and functions that only compute."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from diagevo.errors import DamagedError, StoreError
from diagevo.memory.audit.query_limits import NO_ROWS, Limits, QueryResult, StatementTimer, refused
from diagevo.memory.log.database import Database, readable
from diagevo.memory.log.location import shown

STEPS = 10_000
"""SQLite VM instructions between two checks of the clock and the keyboard: less than a millisecond."""
STATEMENT = 100_000
"""Maximum bytes of a statement."""
PATTERN = 1_000
"""Maximum bytes of a LIKE or GLOB pattern, whose match cannot be interrupted."""
_FUNCTIONS = """
-> ->> abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat concat_ws cos cosh
count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp first_value
floor format glob group_concat hex if ifnull iif instr json json_array json_array_length json_error_position
json_extract json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote
json_remove json_replace json_set json_type json_valid julianday lag last_value lead length like likelihood
likely ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif octet_length percent_rank
percentile percentile_cont percentile_disc pi pow power printf quote radians random rank replace round
row_number rtrim sign sin sinh soundex sqrt strftime string_agg substr substring sum tan tanh time timediff
total trim trunc typeof unhex unicode unistr unixepoch unlikely upper
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
"""Functions of their arguments alone. The others know addresses, files or how SQLite was built."""
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR)
"""Errors of the file, not of the statement."""


@contextmanager
def execute(database: Database, sql: str, run_id: str | None, limits: Limits) -> Generator[QueryResult]:
    """Run one read-only statement. Raises ConfigError if it is not one, or SQLite refuses it."""
    assert database.file is not None
    try:
        connection = sqlite3.connect(readable(database.file), uri=True, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise StoreError(
            f"the database {shown(database.url)} cannot be read: {error}", hint="see: diagevo db status"
        ) from error
    try:
        denied: list[str] = []
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(partial(_authorized, denied))
        for limit, value in (
            (sqlite3.SQLITE_LIMIT_LENGTH, limits.length),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, STATEMENT),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        ):
            connection.setlimit(limit, value)
        work = StatementTimer(limits.seconds, sqlite3.Error, lambda error: _explained(error, denied))
        connection.set_progress_handler(work.expired, STEPS)  # and Python handles Ctrl-C only in Python code
        cursor = work.step(lambda: connection.execute(sql, {"run": run_id}))
        if cursor.description is None:  # COMMIT and similar
            raise refused(NO_ROWS)
        yield QueryResult(tuple(name for name, *_ in cursor.description), work.rows(cursor))
    finally:
        connection.close()


def _authorized(denied: list[str], action: int, _: str | None, name: str | None, *__: str | None) -> int:
    calls = action == sqlite3.SQLITE_FUNCTION
    if action in _ALLOWED or (calls and name in FUNCTIONS):
        return sqlite3.SQLITE_OK
    denied.append(f"{name} is not a function that a query may call" if calls else "")
    return sqlite3.SQLITE_DENY


def _explained(error: Any, denied: list[str]) -> BaseException | None:
    """The error to raise instead of SQLite's; None keeps SQLite's own words."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_INTERRUPT or (code == sqlite3.SQLITE_AUTH and not denied):
        return (
            KeyboardInterrupt()
        )  # Ctrl-C came inside one of our functions, and SQLite replaced it with this
    if code & 0xFF in _DAMAGE:
        return DamagedError(f"the database cannot be read: {error}")
    return refused(denied[-1]) if denied and denied[-1] else None
