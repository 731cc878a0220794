"""Copies of a whole SQLite database, taken while it is written to, and put back; never over a live run.

PostgreSQL has its own: pg_dump and pg_restore.
"""

import os
import sqlite3
from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.log import heads
from diagevo.memory.log.database import Database, readable
from diagevo.memory.log.location import shown
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import refuse_folder, refuse_missing
from diagevo.memory.log.writer_lock import acquire
from diagevo.memory.places import runs_folder
from diagevo.private import atomic_file

PAGE = 1000
ONE_FILE = "PRAGMA journal_mode = DELETE"
"""A file in WAL mode has companions."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was written."""

    file: Path
    bytes: int
    runs: tuple[str, ...]
    position: int
    """The last position in it."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did. `aside`: files that were moved out of the way, never deleted."""

    runs: tuple[str, ...]
    position: int
    aside: tuple[Path, ...]


def refuse_postgres(database: Database, instead: str) -> None:
    if database.dialect != "sqlite":
        raise ConfigError(
            f"{shown(database.url)} is backed up by PostgreSQL's own tools", hint=f"run: {instead}"
        )


def backup(database: Database, target: Path) -> Backup:
    """Write a backup to a new file, checked before it gets its name. Raises StoreError, ConfigError."""
    refuse_postgres(database, "pg_dump --format=custom --file FILE")
    if target.exists():
        raise ConfigError(f"{target} exists", hint="name a new file: a backup never replaces one")
    called = str(database.file)
    wrong = "see what is wrong: diagevo db status; or name another: --db"
    try:
        with atomic_file(target) as part:
            _copy_sqlite(database, part)
            runs, position = _checked(part, called, wrong)
            size = part.stat().st_size
    except OSError as error:
        raise StoreError(
            f"the backup {target} cannot be written: {error.strerror}",
            hint="name a file in a folder that you may write to and that has room",
        ) from error
    return Backup(target, size, runs, position)


def _readable(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(readable(path), uri=True)


def _copy_sqlite(database: Database, target: Path) -> None:
    assert database.file is not None
    refuse_missing(database)
    try:
        with closing(_readable(database.file)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy, pages=2000)
            copy.execute(ONE_FILE)
    except sqlite3.Error as error:
        raise StoreError(
            f"{database.file} cannot be backed up: {error}",
            hint=f"see whether it is whole: diagevo db status; a copy needs room in {target.parent}",
        ) from error


def _checked(path: Path, called: str, hint: str) -> tuple[tuple[str, ...], int]:
    """Runs and last position of a whole DiagEvo database. Raises StoreError where the file is none."""
    try:
        with closing(_readable(path)) as file:
            result = file.execute("PRAGMA integrity_check").fetchone()[0]
            known = file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'event'").fetchone()[0]
        if result == "ok" and known:
            return contents(path)
    except sqlite3.Error as error:
        raise StoreError(f"{called} is not a DiagEvo database: {error}", hint=hint) from error
    what = f"is damaged: {result}" if result != "ok" else "holds no DiagEvo log"
    raise StoreError(f"{called} {what}", hint=hint)


def contents(path: Path) -> tuple[tuple[str, ...], int]:
    """Runs and last position of an SQLite file."""
    with closing(_readable(path)) as file:
        runs = file.execute(
            "SELECT run_id FROM run WHERE sequence > 0 ORDER BY created_at, run_id"
        ).fetchall()
        position = file.execute("SELECT position FROM log").fetchone()[0]
    return tuple(run for (run,) in runs), position


def _runs_of(database: Database) -> tuple[str, ...]:
    """Runs of a database that is about to be replaced; none of a file that cannot tell."""
    if database.file is None or not database.file.exists():
        return ()
    try:
        return contents(database.file)[0]
    except sqlite3.DatabaseError:
        return ()


def restore(file: Path, database: Database, *, replace: bool = False, root: Path | None = None) -> Restored:
    """Put a backup in the place of `database`.

    An existing file needs `replace`, and is moved aside, not deleted. Refused while any run of the database
    has a live writer. A file of chain heads that names events which the backup does not have is moved aside
    too, or `memory verify` would miss those events; the next head vouches for all before it.
    """
    refuse_postgres(database, "pg_restore --dbname NAME FILE")
    if not file.exists():
        raise ConfigError(f"there is no backup at {file}", hint="name one that diagevo db backup wrote")
    if not file.is_file():
        raise ConfigError(f"{file} is not a regular file", hint="name one that diagevo db backup wrote")
    refuse_folder(database)
    runs, position = _checked(file, str(file), "name another backup: a file that diagevo db backup wrote")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    aside: list[Path] = []
    before, folder = _runs_of(database), runs_folder(database, root)
    with ExitStack() as held:
        for run_id in before if replace else ():
            held.callback(acquire(database, run_id, folder / run_id).release)
        aside += _restore_file(file, database, replace, stamp)
    aside += _heads_aside(database, dict.fromkeys((*runs, *before)), folder, stamp)
    return Restored(runs, position, tuple(aside))


def _restore_file(file: Path, database: Database, replace: bool, stamp: str) -> list[Path]:
    target = database.file
    assert target is not None
    aside: list[Path] = []
    try:
        with _alone(database, replace), atomic_file(target) as part:
            with closing(_readable(file)) as source, closing(sqlite3.connect(part)) as copy:
                source.backup(copy)
            if target.exists():
                old = target.with_name(f"{target.name}.before-restore-{stamp}")
                os.replace(target, old)
                aside.append(old)
                for companion in ("-wal", "-shm"):
                    Path(f"{target}{companion}").unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise StoreError(
            f"{target} cannot be written: {problem}",
            hint="name a place that you may write to and that has room: --db FILE",
        ) from error
    return aside


@contextmanager
def _alone(database: Database, replace: bool) -> Generator[None]:
    """Nobody writes to the old file meanwhile, and its journal is inside it."""
    target = database.file
    assert target is not None
    if not target.exists():
        yield
        return
    if not replace:
        raise ConfigError(f"{target} exists", hint="to put it aside and restore: --replace")
    try:
        database.close()
        with closing(sqlite3.connect(target, timeout=5)) as old:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            old.execute(ONE_FILE)
            yield
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise StoreError(f"{target} is in use", hint="stop what reads or writes it") from error
        yield  # a damaged file is what a restore is for


def _heads_aside(database: Database, runs: Iterable[str], root: Path, stamp: str) -> list[Path]:
    """Move aside chain heads of events that the restored database does not have."""
    aside: list[Path] = []
    log = Log(database)
    for run_id in runs:
        file = root / run_id / heads.NAME
        if heads.read(file).last <= log.head(run_id).sequence:
            continue
        old = file.with_name(f"{heads.NAME}.before-restore-{stamp}")
        try:
            os.rename(file, old)
        except OSError as error:
            raise StoreError(
                f"the database is restored, but {file} names events that it does not have, and"
                f" cannot be moved aside: {error.strerror}",
                hint="move it aside yourself (chattr -a first, where it may only be added to)",
            ) from error
        aside.append(old)
    return aside
