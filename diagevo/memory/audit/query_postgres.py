"""`memory query` on PostgreSQL: psycopg's server-side cursor in a READ ONLY transaction with a time limit.

Such a cursor runs one SELECT, VALUES, TABLE or WITH, in which nothing writes; the mode of the transaction
cannot be changed once it has read. Functions with other side effects remain: PostgreSQL refuses most of them
to roles without the right, so a superuser may not query here, and `not_a_reader` lists what else a role
may do. The session ends with the statement, and with it what it set or locked.
"""

import os
import re
import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from itertools import chain
from math import ceil
from typing import Any

from psycopg import Error, postgres, sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.types.string import TextLoader

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.audit.query_limits import HINT, NO_ROWS, Limits, QueryResult, StatementTimer, refused
from diagevo.memory.log.database import Database
from diagevo.memory.log.location import shown
from diagevo.memory.log.prepared import PAGE
from diagevo.text.redaction import masked

_RUN = re.compile(r"(?<![:\w]):run\b")
"""`:run` wherever it stands; in a literal, PostgreSQL then refuses the statement."""

_READ_ONLY = """SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL idle_in_transaction_session_timeout = 0"""
"""Rows may wait for their reader."""
_BOUNDED = """SELECT diagevo_row.* FROM (SELECT * FROM ({0}
) AS diagevo_given OFFSET 0) AS diagevo_row WHERE CASE WHEN pg_column_size(diagevo_row.*) > 16 * {1}::bigint
THEN ('a row of ' || pg_column_size(diagevo_row.*) || ' bytes')::boolean
WHEN octet_length((diagevo_row.*)::text) <= {1} THEN true
ELSE ('a row of ' || octet_length((diagevo_row.*)::text) || ' bytes')::boolean END"""
"""A row beyond the limit is not sent: the cast fails with its size in the message. (The driver would hold a
value of any size.) The line's end ends a comment. Of a gigabyte the server would write the text for a minute,
and hear no timeout: first it is asked for the size that it holds, of which an array of numbers may have
several bytes for one of its text. OFFSET keeps the planner from writing an expression of the statement into
each place that reads it here: a value of a gigabyte was then made five times over."""
GRACE = 1.0
"""Seconds that the server has to end a statement by itself before the client hangs up."""
_TOO_LONG = re.compile(r'type boolean: "(a row of \d+ bytes)"')
_SUPERUSER = """SELECT rolname FROM pg_roles WHERE rolsuper AND rolname IN (session_user, current_user)"""
"""After a SELECT the transaction's mode is fixed."""

NOT_A_READER = """
WITH me AS (SELECT * FROM pg_roles WHERE rolname = session_user),
ours AS (SELECT oid FROM pg_namespace WHERE nspname NOT IN ('pg_catalog', 'information_schema'))
SELECT unnest(ARRAY[CASE WHEN rolsuper THEN 'is a superuser' END,
    CASE WHEN rolcreaterole THEN 'may create roles' END,
    CASE WHEN rolcreatedb THEN 'may create databases' END,
    CASE WHEN rolreplication THEN 'may replicate' END, CASE WHEN rolbypassrls THEN 'may bypass RLS' END])
FROM me
UNION ALL SELECT 'is a member of ' || roleid::regrole FROM pg_auth_members, me WHERE member = me.oid
UNION ALL SELECT 'owns the database' FROM pg_database, me
    WHERE datdba = me.oid AND datname = current_database()
UNION ALL SELECT 'may create in schema ' || nspname FROM pg_namespace
    WHERE has_schema_privilege(session_user, oid, 'CREATE')
UNION ALL SELECT 'may write ' || oid::regclass FROM pg_class
    WHERE relnamespace IN (SELECT oid FROM ours) AND relkind IN ('r', 'p', 'v', 'f')
    AND (has_table_privilege(session_user, oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
        OR has_any_column_privilege(session_user, oid, 'INSERT, UPDATE, REFERENCES'))
UNION ALL SELECT 'may call ' || oid::regprocedure FROM pg_proc
    WHERE has_function_privilege(session_user, oid, 'EXECUTE') AND prorettype <> 'trigger'::regtype
    AND (prosecdef OR provolatile = 'v' AND pronamespace IN (SELECT oid FROM ours)
        OR proname IN ('pg_terminate_backend', 'pg_cancel_backend', 'pg_logical_emit_message'))
"""


def not_a_reader(database: Database) -> list[str]:
    """What the connection's role may do beyond reading; empty for a read-only role."""
    with database.read() as connection:
        found = connection.exec_driver_sql(NOT_A_READER).scalars()
        return [reason for reason in found if reason is not None]


@contextmanager
def execute(database: Database, statement: str, run_id: str | None, limits: Limits) -> Generator[QueryResult]:
    """Run one read-only statement. Raises ConfigError if it is not one, or the database refuses it."""
    if "\0" in statement:
        raise ConfigError("a statement cannot hold a NUL", hint=HINT)
    statement = _RUN.sub(lambda _: sql.quote(run_id), statement).strip().removesuffix(";")
    with database.engine.connect() as pooled:
        connection: Any = pooled.connection.driver_connection

        def explain(error: Exception) -> Exception | None:
            if connection.broken:
                return StoreError(
                    f"the database {shown(database.url)} was lost in the middle of the query:"
                    f" {masked(str(error).splitlines()[0])}",
                    hint="check that the server is running, then try again",
                )
            long = _TOO_LONG.search(str(error))
            return None if long is None else refused(f"{long[1]} is longer than {limits.length}")

        work = StatementTimer(limits.seconds, Error, explain)
        over = threading.Event()
        threading.Thread(target=_hang_up, args=(connection, work, over), daemon=True).start()
        try:
            work.step(lambda: _begin(connection))
            _read_as_text(connection)
            cursor = connection.cursor("diagevo_rows")  # which ends with its session
            work.step(lambda: cursor.execute(_BOUNDED.format(statement, limits.length).encode()))
            if not cursor.description:
                raise refused(NO_ROWS)
            rows = work.rows(_rows(connection, cursor, work))
            first = next(rows, None)
            names = tuple(column.name for column in cursor.description)
            yield QueryResult(names, rows if first is None else chain([first], rows))
        finally:
            over.set()
            pooled.invalidate()


def _hang_up(connection: Any, work: StatementTimer, over: threading.Event) -> None:
    """Close the connection to a server that ignores its own timeout, so that the client does not hang."""
    while not over.wait(GRACE / 4):
        if time.monotonic() > work.deadline + GRACE:
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
            return


def _begin(connection: Any) -> None:
    """A read-only transaction. Raises ConfigError for a superuser."""
    connection.rollback()
    connection.execute(_READ_ONLY)
    superuser = connection.execute(_SUPERUSER).fetchone()
    if superuser is not None:
        raise ConfigError(
            f"a query is not run for {superuser[0]}, a superuser: its functions can do anything",
            hint="connect as a role that may only read: docs/howto/postgresql.md",
        )


def _rows(connection: Any, cursor: Any, work: StatementTimer) -> Iterator[tuple[Any, ...]]:
    """The rows, a page at a time; the statement may have changed the limit, so each page sets it again."""
    size = 1  # the first row does not wait for others
    while True:
        connection.execute(f"SET LOCAL statement_timeout = {max(1, ceil(work.left * 1000))}".encode())
        page = cursor.fetchmany(size)
        yield from page
        if len(page) < size:
            return
        size = min(2 * size, PAGE)


def _read_as_text(connection: Any) -> None:
    """Types that JSON does not have are read as PostgreSQL's own text ("1 mon 2 days", "[1,4)", "infinity"):
    Python's intervals have no months, its dates no infinity."""
    for type_ in postgres.types:
        if type_.name not in ("bool", "int2", "int4", "int8", "oid", "float4", "float8", "json", "jsonb"):
            connection.adapters.register_loader(type_.oid, TextLoader)
    connection.adapters.register_loader("numeric", _Number)
    connection.adapters.register_loader("bytea", _Hexadecimal)


class _Number(Loader):
    """A numeric as the nearest JSON number; as text if out of range."""

    def load(self, data: Buffer) -> int | float | str:
        written = bytes(data).decode()
        exact = Decimal(written)
        if exact.is_finite() and exact == exact.to_integral_value() and abs(exact) < 2**63:
            return int(exact)
        near = float(exact)
        return written if exact.is_finite() and near in (float("inf"), float("-inf")) else near


class _Hexadecimal(Loader):
    """Bytes as hexadecimal digits."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode().removeprefix("\\x")
