"""A bundle as a file: SQLite with the plain tables of one run, declared as the migrations declare them.

What is read was written by somebody else, and SQLite says how such a file is opened
(https://www.sqlite.org/security.html): for reading alone and as it lies, with no trust in its schema, cells
checked, nothing mapped into memory, bounds on what a row may weigh and on the time that a step may take. It
holds these tables, word for word, and nothing else: no view, trigger, index or virtual table can be run.
They are STRICT: SQLite's own check finds a value of another type.
"""

import errno
import os
import sqlite3
import stat
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Table

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.log.migrate import declared
from diagevo.memory.log.tables import ArtifactRow, EventRow, RunRow, VectorRow
from diagevo.memory.log.tables import table as table_of

EXPORT_AGAIN = "take a whole copy of the bundle, or write it again: diagevo runs export RUN -o FILE"
APPLICATION = 0x44674576
"""Of the file's header: this is a bundle."""
FORMAT = 1
LONGEST = 64 * 2**20
"""Bytes of a row: more is neither written nor read."""
SECONDS = 60
"""That one step of reading may take; the look at the whole file a second more for each 4 MiB."""
PAGE = 500

TABLES: dict[str, Table] = {
    found.name: found for found in map(table_of, (RunRow, EventRow, ArtifactRow, VectorRow))
}
INSERTS = {
    name: f"INSERT OR IGNORE INTO {name} VALUES ({', '.join(f':{column.name}' for column in found.c)})"
    for name, found in TABLES.items()
}


class Writer:
    """A new bundle; rows go in one by one."""

    def __init__(self, file: Path) -> None:
        """Raises OSError where it cannot be made."""
        self.rows = dict.fromkeys(TABLES, 0)
        self._file = sqlite3.connect(file, isolation_level=None)
        self._file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"application_id = {APPLICATION}"):
            self._file.execute(f"PRAGMA {setting}")
        self._file.execute(f"PRAGMA user_version = {FORMAT}")
        for name in TABLES:
            self._file.execute(declared()[name])
        self._file.execute("BEGIN")

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        """A row, unless one of its key is there. Raises StoreError for a row that nobody could read."""
        number = self.rows[table] + 1
        try:
            added = self._file.execute(INSERTS[table], row)
        except sqlite3.DataError as error:
            raise StoreError(
                f"row {number} of {table} has more than {LONGEST:,} bytes, which a bundle takes",
                hint="keep the whole database instead: diagevo db backup FILE",
            ) from error
        self.rows[table] += added.rowcount

    def close(self) -> None:
        if self._file.in_transaction:
            self._file.execute("COMMIT")
        self._file.close()


class Stranger:
    """A bundle that somebody sent."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError where there is no file or it is no bundle, StoreError where it holds anything
        else than one."""
        self.path = path
        size = _size(path)
        uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
        self._until = time.monotonic() + SECONDS
        with self._explained():
            self._file = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=0)
            self._file.row_factory = sqlite3.Row
            try:
                self._look(size)
            except BaseException:
                self._file.close()
                raise

    def _look(self, size: int) -> None:
        for limit, bound in (
            (sqlite3.SQLITE_LIMIT_LENGTH, LONGEST),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 2**16),
            (sqlite3.SQLITE_LIMIT_COLUMN, 64),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
            (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
        ):
            self._file.setlimit(limit, bound)
        self._file.set_progress_handler(lambda: time.monotonic() > self._until, 1000)
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "query_only = ON"):
            self._file.execute(f"PRAGMA {setting}")
        self._until = time.monotonic() + SECONDS + size / 2**22
        [(application,)], [(form,)] = (
            self._file.execute(f"PRAGMA {name}").fetchall() for name in ("application_id", "user_version")
        )
        if application != APPLICATION:
            raise ConfigError(
                f"{self.path} is not a bundle", hint="name a file that diagevo runs export RUN -o FILE wrote"
            )
        if form != FORMAT:
            raise StoreError(
                f"{self.path} is a bundle of format {form}, this version reads {FORMAT}",
                hint="read it with the version that wrote it",
            )
        self._refuse_others()
        said = self._file.execute("PRAGMA quick_check(1)").fetchone()[0]
        if said != "ok":
            raise StoreError(f"the bundle {self.path} is damaged: {said}", hint=EXPORT_AGAIN)

    def _refuse_others(self) -> None:
        """Whatever is neither one of the tables, as they are declared, nor an index of their keys."""
        wanted = {(name, declared()[name]) for name in TABLES}
        for kind, name, of, sql in self._file.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"):
            if (kind, name) == ("table", of) and (name, sql) in wanted:
                wanted.remove((name, sql))
            elif kind != "index" or sql is not None or of not in TABLES:
                raise StoreError(
                    f"the bundle {self.path} holds the {kind} {str(name)[:80]!r}, which no bundle has",
                    hint=EXPORT_AGAIN,
                )
        if wanted:
            missing = ", ".join(sorted(name for name, _ in wanted))
            raise StoreError(f"the bundle {self.path} lacks {missing}", hint=EXPORT_AGAIN)

    def rows(self, table: str) -> Iterator[sqlite3.Row]:
        """The rows of a table as they lie in it, streamed. Raises StoreError where they cannot be read."""
        names = ", ".join(column.name for column in TABLES[table].c)
        with self._explained():
            cursor = self._file.execute(f"SELECT {names} FROM {table} NOT INDEXED ORDER BY rowid")
        while page := self._page(cursor):
            yield from page

    def _page(self, cursor: sqlite3.Cursor) -> list[Any]:
        self._until = time.monotonic() + SECONDS
        with self._explained():
            return cursor.fetchmany(PAGE)

    def run(self) -> sqlite3.Row:
        """Which run it is, and where its chain ends."""
        found = list(self.rows("run"))
        if len(found) != 1:
            raise StoreError(f"the bundle {self.path} holds {len(found)} runs, not one", hint=EXPORT_AGAIN)
        return found[0]

    def refusal(self, table: str, row: int, what: str) -> StoreError:
        """The error about a row."""
        return StoreError(f"row {row} of {table} in the bundle {self.path} {what}", hint=EXPORT_AGAIN)

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning, MemoryError, UnicodeError) as error:
            said = f"a step takes more than {SECONDS} s" if str(error) == "interrupted" else str(error)
            raise StoreError(f"the bundle {self.path} cannot be read: {said}", hint=EXPORT_AGAIN) from error

    def close(self) -> None:
        self._file.close()


def _size(path: Path) -> int:
    """Of a regular file. Raises ConfigError for a link, a pipe, a device or a folder: nothing waits at a
    pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if os.pread(descriptor, 16, 0) != b"SQLite format 3\0":
                raise OSError(errno.EINVAL, "it is not a bundle")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read as a bundle: {error.strerror}",
            hint="name a file that diagevo runs export RUN -o FILE wrote",
        ) from error
    return found.st_size
