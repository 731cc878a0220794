"""A bundle as a file: SQLite with the plain tables of one run, declared as the migrations declare them.

What is read was written by somebody else, and SQLite says how such a file is opened
(https://www.sqlite.org/security.html): for reading alone and as it lies, with no trust in its schema, cells
checked, nothing mapped into memory, bounds on what a row may weigh and on the time that a step may take. It
holds these tables, word for word, and nothing else: no view, trigger, index or virtual table can be run.
They are STRICT: SQLite's own check finds a value of another type. Nothing of a bundle is believed before the
events say it.
"""

import errno
import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from sqlalchemy import Table

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.events import (
    CauseAdded,
    CauseCreated,
    Event,
    FailureDiagnosed,
    NodeCreated,
    NodesMerged,
    RunConfigured,
)
from diagevo.memory.events.decode import FACT, Fact, FactRow, facts
from diagevo.memory.events.named_texts import named_texts
from diagevo.memory.events.records import GENESIS, LONGEST, Recorded
from diagevo.memory.log.artifacts import DigestSet, no_text
from diagevo.memory.log.migrate import declared
from diagevo.memory.log.tables import ARTIFACT, EVENT, RUN, VECTOR
from diagevo.memory.log.vectors import model_of, text_hash

EXPORT_AGAIN = "take a whole copy of the bundle, or write it again: diagevo runs export RUN -o FILE"
APPLICATION = 0x44674576
"""Of the file's header: this is a bundle."""
FORMAT = 1
SECONDS = 60
"""That one step of reading may take; the look at the whole file a second more for each 4 MiB."""
PAGE = 500
Rows = Iterator[dict[str, Any]]

TABLES: dict[str, Table] = {found.name: found for found in (RUN, EVENT, ARTIFACT, VECTOR)}
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
            self._file.execute(declared()[f"table {name}"])
        self._file.execute("BEGIN")

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        """Add a row, unless its key exists. Raises StoreError for a row that would be too large to read."""
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


class UntrustedBundle:
    """A received bundle: its rows, each checked as it is read. The events come first: they determine what
    else belongs. Every method raises StoreError at the first row that is not as it was written."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError where there is no file or it is no bundle, StoreError where it holds anything
        else than one."""
        self.path = path
        self.called = f"the bundle {path}"
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
        self.run = self._run()
        """The run, and the end of its chain."""
        self._models: dict[str, int] = {}
        """Embedding models of the run, with the length of their vectors."""
        self._named = DigestSet()
        """Texts that the events name; each is removed once read."""
        self._texts = 0
        """Texts not read yet."""

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
        result = self._file.execute("PRAGMA quick_check(1)").fetchone()[0]
        if result != "ok":
            raise StoreError(f"the bundle {self.path} is damaged: {result}", hint=EXPORT_AGAIN)

    def _refuse_others(self) -> None:
        """Whatever is neither one of the tables, as they are declared, nor an index of their keys."""
        wanted = {(name, declared()[f"table {name}"]) for name in TABLES}
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

    def _run(self) -> sqlite3.Row:
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
            problem = f"a step takes more than {SECONDS} s" if str(error) == "interrupted" else str(error)
            raise StoreError(
                f"the bundle {self.path} cannot be read: {problem}", hint=EXPORT_AGAIN
            ) from error

    def close(self) -> None:
        self._named.close()
        self._file.close()

    def events(self) -> Iterator[Recorded]:
        """The events, up to the end that the bundle names. The caller (`copying`) checks each one and
        passes it to `note`."""
        head, number = GENESIS, 0
        for number, row in enumerate(self.rows("event"), start=1):
            recorded = Recorded(*row)
            if recorded.run_id != self.run["run_id"]:
                raise self.refusal("event", number, f"is an event of run {recorded.run_id}")
            yield recorded
            head = recorded.hash
        sequence, hash_ = self.run["sequence"], self.run["hash"]
        if not number or (number, head) != (sequence, hash_):
            ends = f"the bundle {self.path} ends at event {number} in {head[:12]}…"
            raise StoreError(f"{ends}; its run says {sequence} in {hash_[:12]}…", hint=EXPORT_AGAIN)

    def facts(self, positions: Iterable[int]) -> Iterator[Fact[Event]]:
        """The content of events at these positions, which were already taken."""
        return facts(map(self._fact, positions))

    def _fact(self, position: int) -> FactRow:
        self._until = time.monotonic() + SECONDS
        with self._explained():
            return self._file.execute(
                f"SELECT {', '.join(FACT)} FROM event WHERE position = ?", (position,)
            ).fetchone()

    def note(self, event: Event) -> None:
        """Note what else an accepted event requires."""
        if isinstance(event, RunConfigured):
            self._models[model_of(event.embedder)] = event.embedder.dimension
        for _, digest in named_texts(event):
            self._texts += self._named.add(f"text\n{digest}")
        if (text := embedded(event)) is not None:
            self._named.add(f"vector\n{text_hash(text)}")

    def texts(self) -> Rows:
        """The texts, each checked against its digest; all that the events name must be there."""
        for number, row in enumerate(self.rows("artifact"), start=1):
            digest, content = row
            if hashlib.sha256(content).hexdigest() != digest:
                raise self.refusal("artifact", number, "is not the text of its digest")
            if problem := no_text(content):
                raise self.refusal("artifact", number, problem)
            if not self._named.remove(f"text\n{digest}"):
                raise self.refusal("artifact", number, "is a text that no event names")
            self._texts -= 1
            yield dict(row)
        if self._texts:
            raise self._lacking()

    def _lacking(self) -> StoreError:
        """The first event that names a text which the bundle does not have."""
        number, event, field, digest = next(
            (number, event, field, digest)
            for number, row in enumerate(self.rows("event"), start=1)
            for event in (Recorded(*row),)
            for field, digest in named_texts(event.event)
            if f"text\n{digest}" in self._named
        )
        return StoreError(
            f"event {number} of the bundle {self.path}, {event.type} of round {event.round}, names a"
            f" text that the bundle lacks: {field} {digest}",
            hint=EXPORT_AGAIN,
        )

    def vectors(self) -> Rows:
        """The vectors, each of a model of the run and of a text that an event names, of its length and
        finite."""
        for number, row in enumerate(self.rows("vector"), start=1):
            model, hash_, vector = row
            if model not in self._models or f"vector\n{hash_}" not in self._named:
                raise self.refusal("vector", number, "is a vector that no event asks for")
            if not self._models[model]:  # a model that was never named: whatever comes first
                self._models[model] = len(vector) // 4
            length = 4 * self._models[model]
            if not vector or len(vector) != length:
                raise self.refusal("vector", number, f"has {len(vector)} bytes, not {length}")
            if not np.isfinite(np.frombuffer(vector, dtype="<f4")).all():
                raise self.refusal("vector", number, "is not finite")
            yield dict(row)


def embedded(event: Event) -> str | None:
    """The text of an event that is embedded, if it has one."""
    match event:
        case CauseCreated(description=text) | FailureDiagnosed(description=text):
            return text
        case CauseAdded(description=text):
            return text
        case NodeCreated(label=text) | NodesMerged(label=text):
            return text
        case _:
            return None


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
