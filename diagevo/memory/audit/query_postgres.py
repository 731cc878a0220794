"""`memory query` on PostgreSQL: nothing runs before it is known to be one statement that reads.

What is asked is described without being run, and must be what a cursor can be declared for: SELECT, VALUES,
TABLE or WITH, in which nothing writes. It runs in a READ ONLY transaction whose mode can no longer be
changed, with the rights of the role that may only read (`reader.py`). Its session ends with it, and with that
what it set or locked.
"""

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from itertools import chain
from typing import Any

from psycopg import Connection, Cursor, Error, postgres
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.types.string import TextLoader

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.audit.query import HINT, NO_ROWS, REFUSED, Answer, executed, refused, rows_of
from diagevo.memory.log.database import PAGE, Database
from diagevo.memory.log.location import shown
from diagevo.redaction import masked

NOT_READING = "only SELECT, VALUES, TABLE and WITH are run, and nothing in them may write"
TEXT = postgres.types["text"].oid

_BEGUN = """SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL standard_conforming_strings = on;
SET LOCAL idle_in_transaction_session_timeout = 0;
SELECT 1"""
"""Literals are as `_TOKEN` reads them; rows may wait for a reader. After a SELECT the mode is fixed."""

_TOKEN = re.compile(
    r"""(?P<comment>/\*) | --[^\n]*
    | [eE]'(?:[^'\\]|\\.|'')*'(?:\s*\n\s*'(?:[^'\\]|\\.|'')*')*
    | '(?:[^']|'')*' | "(?:[^"]|"")*"
    | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$
    | [^\W\d][\w$]* | \d\w* | ::
    | (?P<run>:run\b)""",
    re.VERBOSE | re.DOTALL,
)
"""What may have `:run` inside and keeps it, and `:run` itself."""
_COMMENT_END = re.compile(r"/\*|\*/")


def with_parameter(sql: str) -> str:
    """`sql` with `$1` for each `:run` that stands outside of literals, names, casts and comments."""
    out: list[str] = []
    place = 0
    while found := _TOKEN.search(sql, place):
        end = found.end()
        if found["comment"]:
            end = _comment_end(sql, end)
        out += [sql[place : found.start()], "$1" if found["run"] else sql[found.start() : end]]
        place = end
    return "".join([*out, sql[place:]])


def _comment_end(sql: str, place: int) -> int:
    """Where the comment ends whose `/*` is before `place`: PostgreSQL's nest."""
    depth = 1
    while depth and (found := _COMMENT_END.search(sql, place)):
        depth += 1 if found[0] == "/*" else -1
        place = found.end()
    return len(sql) if depth else place


@contextmanager
def ask(database: Database, sql: str, run_id: str | None) -> Generator[Answer]:
    """Run one statement that reads. Raises ConfigError where it is none, or the database refuses it."""
    if "\0" in sql:
        raise ConfigError("a statement cannot hold a NUL", hint=HINT)
    statement = with_parameter(sql)
    with database.engine.connect() as pooled:
        connection: Any = pooled.connection.driver_connection
        connection.rollback()
        try:
            with connection.cursor() as cursor:
                cursor.execute(_BEGUN)
                names, types = _described(connection.pgconn, statement)
                rows = _rows(cursor, statement, run_id, types)
                first = executed(lambda: next(rows, None), Error)
                yield Answer(names, rows_of([] if first is None else chain([first], rows), Error))
        except (ConfigError, Error) as error:
            if not connection.broken:
                raise
            said = masked(str(error).splitlines()[0].removeprefix(REFUSED))
            raise StoreError(
                f"the database {shown(database.url)} was lost in the middle of the query: {said}",
                hint="ask again; is the server running?",
            ) from error
        finally:
            _end(connection)
            pooled.invalidate()


def _end(connection: "Connection[Any]") -> None:
    """End what runs there. If Ctrl-C came while psycopg read an answer, it cannot go on, and refuses a
    rollback."""
    if connection.info.transaction_status == TransactionStatus.ACTIVE:
        with suppress(Error):
            connection.cancel_safe(timeout=5)
        connection.close()
    elif not connection.closed:
        connection.rollback()


def _described(connection: PGconn, statement: str) -> tuple[tuple[str, ...], list[int]]:
    """Names and types of the columns, without running anything. ConfigError for what is not one reading."""
    text = executed(statement.encode, UnicodeError)
    prepared = connection.prepare(b"", text, [TEXT])
    if prepared.status != ExecStatus.COMMAND_OK:
        raise refused(prepared.error_message.decode(errors="replace").strip().removeprefix("ERROR:").strip())
    found = connection.describe_prepared(b"")
    declared = connection.prepare(b"", b"DECLARE diagevo_asked CURSOR FOR " + text, [TEXT])
    if declared.status != ExecStatus.COMMAND_OK:
        raise refused(NOT_READING)
    if not found.nfields:
        raise refused(NO_ROWS)
    names = tuple((found.fname(i) or b"").decode() for i in range(found.nfields))
    return names, [found.ftype(i) for i in range(found.nfields)]


def _rows(
    cursor: "Cursor[Any]", statement: str, run_id: str | None, types: list[int]
) -> Iterator[tuple[Any, ...]]:
    """The rows, a page at a time, opened and fetched by the functions of revision 0004."""
    cursor.execute(
        "SELECT format_type(oid, NULL) FROM unnest(%s::oid[]) WITH ORDINALITY AS t(oid, i) ORDER BY i",
        [types],
    )
    columns = ", ".join(f"c{i} {name}" for i, (name,) in enumerate(cursor.fetchall()))
    cursor.execute("SELECT diagevo_open(%s, %s)", [statement, run_id])
    for type_ in postgres.types:
        if type_.name not in _PLAIN:
            cursor.adapters.register_loader(type_.oid, TextLoader)
    cursor.adapters.register_loader("numeric", _Number)
    cursor.adapters.register_loader("bytea", _Hexadecimal)
    size = 1  # the first row is not kept waiting for others
    while True:
        page = f"SELECT * FROM diagevo_page('diagevo_rows', {size}) AS page({columns})"
        rows = cursor.execute(page.encode()).fetchall()
        yield from rows
        if len(rows) < size:
            return
        size = min(2 * size, PAGE)


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
