"""One SQL database: SQLite by default, PostgreSQL for several machines. Read and write transactions.

SQLite is written in WAL mode and every write transaction begins IMMEDIATE: a deferred read that turns into
a write fails at once, whatever the timeout. Reading leaves a file's journal mode alone, and works
where nothing may be written. On PostgreSQL writers queue on the row of `log` (see `log.py`).
"""

import os
import sqlite3
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from sqlalchemy import (
    ARRAY,
    URL,
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Table,
    Text,
    bindparam,
    create_engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, PendingRollbackError

from diagevo.errors import DamagedError, MissingDependencyError, StoreError
from diagevo.memory.log import lock_timeouts
from diagevo.memory.log.location import database_url, shown
from diagevo.memory.log.prepared import Prepared
from diagevo.text.escaping import storable
from diagevo.text.redaction import masked

CACHE = 64 * 2**20
"""Bytes of SQLite's page cache per connection, so that a transaction writes each page once."""
BUSY_SECONDS = 60
"""How long a writer waits for another before the database counts as locked."""

STEPS = 10_000
"""Of SQLite's machine, after which the clock is looked at where reading is bounded."""
RESTART_SECONDS = 20
"""How long a PostgreSQL server that answered before is waited for between transactions: it may restart."""


def readable(file: Path) -> str:
    """The URI with which SQLite opens a file read-only."""
    how = "immutable=1" if _is_frozen(file) else "mode=ro"
    return f"file:{quote(str(file.resolve()))}?{how}"


def _is_frozen(file: Path) -> bool:
    """Whether SQLite must be told that nobody writes to the file, because it could not open it otherwise. In
    WAL mode readers and writers share two files next to it; if these do not exist and cannot be made, nobody
    writes. In any other mode, or if there is a WAL to read, SQLite sees for itself.
    """
    file = file.resolve()
    if os.access(file.parent, os.W_OK):
        return False
    log, index = (file.with_name(file.name + end) for end in ("-wal", "-shm"))
    try:
        if log.exists() and (index.exists() or log.stat().st_size):
            return False
        with file.open("rb") as opened:
            return opened.read(20)[18:] == b"\x02\x02"  # the versions in the header: 2 is WAL
    except OSError:
        return False


_FLUSHED_LATER = "BEGIN; SET LOCAL synchronous_commit = off"
_FLUSHED = "COMMIT; SELECT pg_logical_emit_message(true, 'diagevo', '')"
"""PostgreSQL keeps the row that writers queue on locked until the disk has the commit: each run would wait
for the disk of every other one. So a commit leaves the queue first; then an empty message is committed as
the server is set to, and what was written before it is on the disk with it. A write returns after that. A
role that may not write such a message commits as the server is set to, and keeps the queue waiting."""
_MAY_FLUSH = """SELECT bool_and(has_function_privilege(oid, 'EXECUTE')) FROM pg_proc
WHERE proname = 'pg_logical_emit_message'"""


@dataclass(frozen=True, slots=True)
class _Bound:
    """When reading ends, and the error that says so."""

    until: float
    error: StoreError

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until


class _Joined(threading.local):
    """What reads and writes of this thread join: a write's connection, or a view's; and how long it reads."""

    connection: Connection | None = None
    viewed: bool = False
    bound: _Bound | None = None


class Database:
    """Connections to one database. `synchronous` is SQLite's: NORMAL survives a crash of the program, FULL
    also a power failure."""

    def __init__(self, location: str, *, synchronous: Literal["NORMAL", "FULL"] = "NORMAL") -> None:
        self.url = database_url(location)
        self.dialect = self.url.get_backend_name()
        self._joined = _Joined()
        self._commit: Prepared | None = None
        if self.dialect == "sqlite":
            self.engine = self._readers = self._writers = _sqlite(self.url, synchronous)
            self._begin = {how: Prepared(self.engine, text(how), ()) for how in ("BEGIN", "BEGIN IMMEDIATE")}
            self._ahead = Prepared(self.engine, text("PRAGMA journal_mode = WAL"), ())
        else:
            self.engine = _postgres(self.url)
            self._readers = self.engine.execution_options(isolation_level="REPEATABLE READ")
            # psycopg would begin by itself, with a message to the server of its own.
            self._writers = self.engine.execution_options(isolation_level="AUTOCOMMIT")
            self._begin = {}

    @property
    def file(self) -> Path | None:
        """The SQLite file; None on PostgreSQL."""
        return Path(self.url.database) if self.dialect == "sqlite" and self.url.database else None

    @contextmanager
    def read(self) -> Generator[Connection]:
        """A read transaction: one consistent view, whatever is written meanwhile.

        Inside a write transaction of the same thread it joins that one, and sees what it wrote; inside a
        view, that view.
        """
        joined = self._joined.connection
        if joined is not None:
            self._hurry(joined)
            yield joined
            return
        with explained(self), self._readers.connect() as connection:
            if begin := self._begin.get("BEGIN"):
                begin(connection)
            else:  # a reader blocks nobody, and its rows may wait for their consumer
                connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            with _discard_on_interrupt(connection), self._ended_in_time(connection):
                yield connection
            if connection.invalidated:  # the reader took it for damage
                raise _lost(shown(self.url), "the session ended")

    @contextmanager
    def bounded(self, seconds: float, error: StoreError) -> Generator[None]:
        """For all that this thread reads inside: a statement that is not done after so many seconds, or that
        would begin then, raises `error`. What Python makes of the rows meanwhile is not interrupted."""
        self._joined.bound = _Bound(time.monotonic() + seconds, error)
        try:
            yield
        finally:
            self._joined.bound = None

    def _hurry(self, connection: Connection) -> None:
        """Raises what `bounded` was given where its time is over; else tells the server what is left."""
        if (bound := self._joined.bound) is None:
            return
        if bound.over:
            raise bound.error
        if self.dialect == "postgresql":
            left = ceil((bound.until - time.monotonic()) * 1000)
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, left)}")

    @contextmanager
    def _ended_in_time(self, connection: Connection) -> Generator[None]:
        if (bound := self._joined.bound) is None:
            yield
            return
        file: Any = connection.connection.driver_connection
        if self.dialect == "sqlite":
            file.set_progress_handler(lambda: bound.over, STEPS)
        try:
            self._hurry(connection)
            yield
        except DBAPIError as error:
            if bound.over:
                raise bound.error from error
            raise
        finally:
            if self.dialect == "sqlite":
                file.set_progress_handler(None, 0)

    @contextmanager
    def view(self) -> Generator[None]:
        """One snapshot of the database for everything this thread reads inside. A write there is an
        error: it would end with the view, uncommitted."""
        if self._joined.connection is not None:
            yield
            return
        with self.read() as connection:
            self._joined.connection, self._joined.viewed = connection, True
            try:
                yield
            finally:
                self._joined.connection, self._joined.viewed = None, False

    @contextmanager
    def write(self) -> Generator[Connection]:
        """A write transaction: committed at the end, rolled back whole on any error.

        Inside another one of the same thread it joins that one: all of it is committed or rolled back
        together.
        """
        joined = self._joined.connection
        if joined is not None:
            if self._joined.viewed:
                raise RuntimeError("a write inside a view")
            yield joined
            return
        with explained(self), self._writers.connect() as connection, connection.begin():
            if self.dialect == "sqlite" and "wal" not in connection.info:  # once a connection of the pool
                self._ahead(connection).close()
                connection.info["wal"] = True
            if self.dialect == "postgresql" and self._commit is None:
                self._choose(connection)
            self._begin["BEGIN IMMEDIATE"](connection)
            self._joined.connection = connection
            try:
                with _discard_on_interrupt(connection):
                    yield connection
            finally:
                self._joined.connection = None
            if self._commit:
                self._commit(connection)

    def _choose(self, connection: Connection) -> None:
        """Choose how this role's transactions begin and end."""
        may = connection.exec_driver_sql(_MAY_FLUSH).scalar_one()
        begin, commit = (_FLUSHED_LATER, _FLUSHED) if may else ("BEGIN", "COMMIT")
        self._begin["BEGIN IMMEDIATE"] = Prepared(self.engine, text(begin), ())
        self._commit = Prepared(self.engine, text(commit), ())

    @contextmanager
    def bulk_load(self) -> Generator[None]:
        """Writes inside go directly into SQLite's file, if nobody else has it open, not first into the
        WAL: each page of a new database is written once. Other connections wait meanwhile."""
        if self.dialect != "sqlite":
            yield
            return
        with explained(self), self._writers.connect() as connection:
            with suppress(OperationalError):  # somebody has it open
                Prepared(self.engine, text("PRAGMA journal_mode = DELETE"), ())(connection).close()
            connection.info["wal"] = True
        try:
            yield
        finally:
            with explained(self), self._writers.connect() as connection:
                self._ahead(connection).close()

    def session(self) -> Connection:
        """A PostgreSQL session that the caller keeps, outside any transaction, until closing it."""
        connection = self._writers.connect()
        connection.detach()
        return connection

    def close(self) -> None:
        self.engine.dispose()


@contextmanager
def _discard_on_interrupt(connection: Connection) -> Generator[None]:
    """A connection interrupted by Ctrl-C is not used again: it may be in the middle of a reply, and would
    refuse the rollback. Uncommitted work ends with it."""
    try:
        yield
    except KeyboardInterrupt:
        connection.invalidate()
        raise
    except GeneratorExit:  # a dropped stream has no caller to raise to: Python would print it
        try:
            connection.rollback()
        except DBAPIError:
            connection.invalidate()
        raise


def insert_into(dialect: str, target: Table) -> Any:
    """The dialect's INSERT, which supports ON CONFLICT."""
    # Each dialect is imported only where it is used: PostgreSQL's takes a tenth of a second.
    if dialect == "sqlite":
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert
    return insert(target)


def insert_missing(database: Database, target: Table) -> Executable:
    """An INSERT that leaves existing rows alone."""
    return insert_into(database.dialect, target).on_conflict_do_nothing()


def in_list(database: Database, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    """Whether the column equals one of many texts, passed as one parameter (`list_param`)."""
    if database.dialect == "postgresql":
        return column == func.any(bindparam(name, type_=ARRAY(Text)))
    return column.in_(select(func.json_each(bindparam(name)).table_valued("value").c.value))


def list_param(database: Database, texts: Sequence[str]) -> Any:
    """Texts as the parameter of `in_list`. A text that no column can hold matches no row and is
    left out: PostgreSQL would refuse the statement."""
    kept = [text for text in texts if storable(text) == text]
    return kept if database.dialect == "postgresql" else msgspec.json.encode(kept).decode()


STRICT = (3, 37)
"""The first SQLite version with STRICT tables."""


def _sqlite(url: URL, synchronous: str) -> Engine:
    if sqlite3.sqlite_version_info < STRICT:
        raise MissingDependencyError(
            f"the log needs SQLite {'.'.join(map(str, STRICT))} or newer; this Python has"
            f" {sqlite3.sqlite_version}",
            hint="use a Python that brings its own (python.org, uv, conda), or PostgreSQL",
        )
    # As many connections as threads: one that waits for the lock does not keep others from waiting.
    engine = create_engine(
        url, connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False}, max_overflow=-1
    )

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> None:
        file = Path(arguments[0])
        if _is_frozen(file):
            arguments[0], options["uri"] = readable(file), True

    @event.listens_for(engine, "connect")
    def _connected(dbapi: Any, _record: Any) -> None:
        dbapi.isolation_level = None  # pysqlite must not begin transactions of its own
        dbapi.execute(f"PRAGMA synchronous = {synchronous}")
        dbapi.execute("PRAGMA recursive_triggers = ON")
        dbapi.execute(f"PRAGMA cache_size = -{CACHE >> 10}")  # of a smaller one, pages are written again

    return engine


def _postgres(url: URL) -> Engine:
    # A ping before each checkout detects a restarted server; memories stay open for days.
    engine = create_engine(url, pool_pre_ping=True, pool_timeout=BUSY_SECONDS, paramstyle="format")
    answered = False

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
        nonlocal answered
        deadline = time.monotonic() + (RESTART_SECONDS if answered else 0)
        while True:
            try:
                connection = dialect.connect(*arguments, **lock_timeouts.session(options))
                lock_timeouts.bound(connection)
            except dialect.loaded_dbapi.OperationalError:
                if time.monotonic() > deadline:
                    answered = False  # whoever tells of the end is not kept waiting again
                    raise
                time.sleep(0.5)
            else:
                answered = True
                return connection

    return engine


@contextmanager
def explained(database: Database) -> Generator[None]:
    """Turns the driver's error into what, where and the next step."""
    try:
        yield
    except DBAPIError as error:
        own = database.engine.dialect.loaded_dbapi
        if not isinstance(error.orig, own.Error):
            raise  # of another database, whose own words are further out
        explained = _explanation(shown(database.url), error)
        if database.dialect == "postgresql":
            explained = lock_timeouts.explained(database.engine, shown(database.url), error.orig) or explained
        if explained is None:
            raise
        raise explained from error
    except PendingRollbackError as error:  # a query after the session ended
        if database.dialect == "sqlite":
            raise
        raise _lost(shown(database.url), "the session ended") from error
    except UnicodeDecodeError as error:  # SQLite names what is damaged, and its name is
        raise DamagedError(f"the database {shown(database.url)} is damaged: {error}") from error


INSUFFICIENT_PRIVILEGE = "42501"
"""SQLSTATE."""
_DAMAGE = (
    "malformed",
    "unsupported file format",
    "Could not decode",
    "no such table",
    "no such column",
)
"""SQLite's messages for a file whose pages, texts or schema are damaged."""


def _explanation(where: str, error: DBAPIError) -> StoreError | None:
    message = masked(str(error.orig))
    if "not a database" in message:
        hint = "name another file: --db FILE; was it one of ours, restore a backup: diagevo db restore"
        return StoreError(f"{where} is no SQLite database, or its first bytes are damaged", hint=hint)
    if any(words in message for words in _DAMAGE):
        return DamagedError(f"the database {where} is damaged: {message}")
    if getattr(error.orig, "sqlstate", None) == INSUFFICIENT_PRIVILEGE:
        hint = "use the role that owns the log, or grant what is missing: docs/howto/postgresql.md"
        return StoreError(f"the database {where} does not allow it: {message}", hint=hint)
    if isinstance(error, InterfaceError) and hasattr(error.orig, "sqlstate"):
        return _lost(where, message)
    if not isinstance(error, OperationalError):
        return None
    if "locked" in message:
        hint = "another program holds it; try again when it is done"
        return StoreError(f"the database {where} is locked", hint=hint)
    if "unable to open" in message:
        hint = "check that the file and its folder exist, and that you may read and write there"
        return StoreError(f"the database {where} cannot be opened: {message}", hint=hint)
    if "readonly" in message or "disk I/O" in message or "full" in message:
        hint = "check that the folder exists, is writable and has free space"
        return StoreError(f"the database {where} cannot be written: {message}", hint=hint)
    return _lost(where, message)


def _lost(where: str, message: str) -> StoreError:
    hint = "check its address and that it runs, then start the command again"
    return StoreError(f"the database {where} does not answer: {message}", hint=hint)
