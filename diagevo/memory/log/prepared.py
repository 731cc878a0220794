"""Statements that are compiled once and run on the driver's own cursor, for operations done a million
times."""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import count
from typing import Any, cast

from sqlalchemy import ClauseElement, Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

PAGE = 500
"""Rows of a stream in memory, whatever the length of the log."""
_CURSORS = count(1)


class Prepared:
    """A Core statement compiled once and run on the driver's own cursor, with values in the order of `names`.

    An append is four statements; building and wrapping one takes ten times what SQLite takes to run it. A
    replay reads rows by the million; wrapping them takes as long as folding them.
    """

    def __init__(self, engine: Engine, statement: ClauseElement, names: Sequence[str]) -> None:
        dialect = engine.dialect
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        order = compiled.positiontup
        assert order is not None  # both engines are made with a positional style
        if order[: len(names)] != list(names):
            raise ValueError(f"the statement takes {order}, not {list(names)}")
        self._literals = tuple(compiled.params[name] for name in order[len(names) :])
        self._sql = str(compiled)
        self._dialect = dialect
        self._errors: type[Exception] = dialect.loaded_dbapi.Error
        self._named = dialect.name == "postgresql"
        self._none = None if self._named else ()  # without values psycopg sends several statements at once

    def __call__(self, connection: Connection, *values: Any) -> Any:
        """Run it; the driver's cursor."""
        cursor = connection.connection.cursor()
        try:
            cursor.execute(self._sql, values + self._literals or self._none)
        except self._errors as error:
            raise self._wrapped(connection, error) from error
        return cursor

    def one(self, connection: Connection, *values: Any) -> tuple[Any, ...] | None:
        """Run it; its first row, if there is one."""
        with closing(self(connection, *values)) as cursor:
            try:
                return cursor.fetchone()
            except self._errors as error:
                raise self._wrapped(connection, error) from error

    def all(self, connection: Connection, *values: Any) -> list[tuple[Any, ...]]:
        """Run it; its rows."""
        with closing(self(connection, *values)) as cursor:
            try:
                return cursor.fetchall()
            except self._errors as error:
                raise self._wrapped(connection, error) from error

    def stream(self, connection: Connection, *values: Any) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Run it; its rows a page at a time, each fetched on demand."""
        # psycopg keeps the whole result in memory, unless its cursor has a name.
        options = {"name": f"diagevo_{next(_CURSORS)}"} if self._named else {}
        cursor = connection.connection.cursor(**options)
        try:
            cursor.execute(self._sql, values + self._literals)
            while rows := cursor.fetchmany(PAGE):
                yield rows
        except self._errors as error:
            raise self._wrapped(connection, error) from error
        finally:
            with suppress(self._errors):  # a stream that an error left behind may outlive its connection
                cursor.close()

    def many(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run it for each row."""
        if len(rows) == 1:
            self(connection, *rows[0])
            return
        cursor = connection.connection.cursor()
        try:
            cursor.executemany(self._sql, rows)
        except self._errors as error:
            raise self._wrapped(connection, error) from error

    def _wrapped(self, connection: Connection, error: Exception) -> Exception:
        if self._dialect.is_disconnect(cast(Any, error), connection.connection.dbapi_connection, None):
            connection.invalidate(error)  # else its rollback fails too, and that error is reported
        return DBAPIError.instance(self._sql, None, error, self._errors)
