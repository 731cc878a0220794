"""`memory query` on PostgreSQL: a cursor over one statement, in a READ ONLY transaction with a time limit.

A cursor can be declared for SELECT, VALUES, TABLE and WITH alone, in which nothing writes; the mode of the
transaction cannot be changed once it has read. Functions with effects of another kind remain: PostgreSQL
refuses most of them to whoever has no right to them, so a superuser asks nothing here, and `not_a_reader`
says what else a role may do. The session ends with the statement, and with it what it set or locked; what it
notified is taken back. A row has a limit of bytes here; the server makes it all the same.
"""

import os
import re
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from itertools import chain
from math import ceil
from threading import Timer
from typing import Any

from psycopg import Connection, Error, postgres, sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import TransactionStatus
from psycopg.types.string import TextLoader

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.audit.query import HINT, NO_ROWS, Limits, QueryResult, Work, refused
from diagevo.memory.log.database import Database
from diagevo.memory.log.location import shown
from diagevo.memory.log.prepared import PAGE
from diagevo.text.redaction import masked

_RUN = re.compile(r"(?<![:\w]):run\b")
"""`:run` wherever it stands; in a literal, PostgreSQL then refuses the statement."""

_READ_ONLY = """SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL idle_in_transaction_session_timeout = 0"""
"""Rows may wait for a reader."""
_DECLARED = """DECLARE diagevo_rows NO SCROLL CURSOR FOR SELECT diagevo_row.* FROM ({}
) AS diagevo_row WHERE CASE WHEN octet_length((diagevo_row.*)::text) <= {} THEN true
ELSE ('a row of ' || octet_length((diagevo_row.*)::text) || ' bytes')::boolean END"""
"""A row beyond the limit is not sent: the cast fails with its size in the message. (The driver would hold a
value of any size.) The line's end ends a comment."""
_TOO_LONG = re.compile(r'type boolean: "(a row of \d+ bytes)"')
_SUPERUSER = """SELECT rolname FROM pg_roles WHERE rolsuper AND rolname IN (session_user, current_user)"""
"""After a SELECT the mode of the transaction is fixed."""
GRACE = 2.0
"""Seconds in which the server may end a statement itself. Some of its functions look at no clock: to write a
gigabyte as text takes half a minute."""

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
    """What the role of the connection may do that a role made for reading may not; none for such a one."""
    with database.read() as connection:
        found = connection.exec_driver_sql(NOT_A_READER).scalars()
        return [reason for reason in found if reason is not None]


@contextmanager
def ask(database: Database, statement: str, run_id: str | None, limits: Limits) -> Generator[QueryResult]:
    """Run one statement that reads. Raises ConfigError where it is none, or the database refuses it."""
    if "\0" in statement:
        raise ConfigError("a statement cannot hold a NUL", hint=HINT)
    statement = _RUN.sub(lambda _: sql.quote(run_id), statement).strip().removesuffix(";")

    def lost(error: Exception) -> StoreError:
        said = masked(str(error).splitlines()[0])
        return StoreError(
            f"the database {shown(database.url)} was lost in the middle of the query: {said}",
            hint="check that the server is running, then try again",
        )

    with database.engine.connect() as pooled:
        connection: Any = pooled.connection.driver_connection
        connection.rollback()

        def explain(error: Exception) -> Exception | None:
            long = _TOO_LONG.search(str(error))
            if long is not None:
                return refused(f"{long[1]} is longer than {limits.length}")
            return lost(error) if connection.broken else None

        work = Work(limits.seconds, Error, explain)
        try:
            with connection.cursor() as cursor:
                _begin(cursor)
                _time(cursor, work)
                declared = work.step(_DECLARED.format(statement, limits.length).encode)
                with _awaited(connection, work):
                    work.step(lambda: cursor.execute(declared, prepare=True))  # what is prepared is one
                _read_as_text(cursor)
                rows = _rows(cursor, work)
                first = work.step(lambda: next(rows, None))
                if not cursor.description:
                    raise refused(NO_ROWS)
                names = tuple(column.name for column in cursor.description)
                yield QueryResult(names, work.rows([] if first is None else chain([first], rows)))
        except Error as error:
            raise lost(error) from error
        finally:
            _end(connection)
            pooled.invalidate()


def _begin(cursor: Any) -> None:
    """A transaction that reads. Raises ConfigError for a superuser."""
    cursor.execute(_READ_ONLY)
    superuser = cursor.execute(_SUPERUSER).fetchone()
    if superuser is not None:
        raise ConfigError(
            f"a query is not run for {superuser[0]}, a superuser: its functions can do anything",
            hint="connect as a role that may only read: docs/howto/postgresql.md",
        )


def _time(cursor: Any, work: Work) -> None:
    cursor.execute(f"SET LOCAL statement_timeout = {max(1, ceil(work.left * 1000))}".encode())


@contextmanager
def _awaited(connection: "Connection[Any]", work: Work) -> Generator[None]:
    """No longer than the statement may take: then the connection is cut, and the server ends it later."""

    def cut() -> None:
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    timer = Timer(work.left + GRACE, cut)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(connection: "Connection[Any]") -> None:
    """End what runs there. If Ctrl-C came while psycopg read an answer, it cannot go on, and refuses a
    rollback."""
    if connection.info.transaction_status == TransactionStatus.ACTIVE:
        with suppress(Error):
            connection.cancel_safe(timeout=5)
        connection.close()
    elif not connection.closed:
        connection.rollback()


def _rows(cursor: Any, work: Work) -> Iterator[tuple[Any, ...]]:
    """The rows, a page at a time; the statement may have changed the limit, so each page sets it again."""
    size = 1  # the first row is not kept waiting for others
    while True:
        _time(cursor, work)
        with _awaited(cursor.connection, work):
            rows = cursor.execute(f"FETCH {size} FROM diagevo_rows".encode()).fetchall()
        yield from rows
        if len(rows) < size:
            return
        size = min(2 * size, PAGE)


def _read_as_text(cursor: Any) -> None:
    """Types that JSON does not have are read as PostgreSQL's own text."""
    for type_ in postgres.types:
        if type_.name not in _PLAIN:
            cursor.adapters.register_loader(type_.oid, TextLoader)
    cursor.adapters.register_loader("numeric", _Number)
    cursor.adapters.register_loader("bytea", _Hexadecimal)


_PLAIN = ("bool", "int2", "int4", "int8", "oid", "float4", "float8", "json", "jsonb")
"""Types that JSON has. Of all others there is PostgreSQL's own text ("1 mon 2 days", "[1,4)", "infinity"):
Python's intervals have no months, its dates no infinity."""


class _Number(Loader):
    """A numeric as the nearest number that JSON has; as text where it is beyond them."""

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
