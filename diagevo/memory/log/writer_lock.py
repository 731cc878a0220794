"""One writer per run: a lock that ends with the process that holds it, however that process ends. It decides
who may try. Who may write follows from the sequence that an append expects (`log.py`): even if a lock broke,
or two machines do not share it, histories never mix. On SQLite it is `flock` on a file in the run's folder,
on PostgreSQL an advisory lock of a dedicated session. The holder's description of itself is for people;
nothing depends on it.
"""

import errno
import fcntl
import os
import select
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from diagevo.errors import HeldError, StoreError
from diagevo.memory.log import lock_timeouts
from diagevo.memory.log.database import Database, explained
from diagevo.memory.log.log import now
from diagevo.private import private_file, private_folder
from diagevo.text.escaping import visible

NAME = "writer.lock"
TRIES = 15
PAUSE = 0.02
"""Seconds between two tries. A reader holds the file for an instant, and a server frees a killed
process's lock a moment later."""
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
_HOLDER = """SELECT application_name, to_char(state_change AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')
FROM pg_locks JOIN pg_stat_activity AS session USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datname = current_database()
AND (classid::bigint << 32 | objid::bigint) = %s"""


def _leave_to_the_parent() -> None:
    """In a forked child, which inherits the descriptors: it would keep its parent's locks when the parent
    dies, and end the parent's sessions when it exits."""
    null = os.open(os.devnull, os.O_RDWR)
    for lock in list(_OPEN):
        if (descriptor := lock.descriptor()) is not None:
            os.dup2(null, descriptor, inheritable=False)
    os.close(null)


os.register_at_fork(after_in_child=_leave_to_the_parent)


class _FileLock:
    def __init__(self, folder: Path) -> None:
        private_folder(folder)
        private_file(folder / NAME)
        self._process = os.getpid()
        self._file = open(folder / NAME, "r+b", buffering=0)  # noqa: SIM115  (open as long as the lock is held)
        _OPEN.add(self)

    def take(self) -> bool:
        """Try once."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        with suppress(OSError):  # a full disk
            self._file.write(f"{lock_timeouts.this_process()}\n{now()[:19].replace('T', ' ')}\n".encode())
            self._file.truncate()
        return True

    def is_held(self) -> bool:
        """Whether it is still held: not in a forked child."""
        return not self._file.closed and self._process == os.getpid()

    def release(self) -> None:
        if self.is_held():
            fcntl.flock(self._file, fcntl.LOCK_UN)  # a child between fork and exec has the file open too
        self._file.close()

    def descriptor(self) -> int | None:
        return None if self._file.closed else self._file.fileno()


class _SessionLock:
    def __init__(self, session: Connection, run_id: str) -> None:
        self._process = os.getpid()
        self._session = session
        self._key = _key(run_id)
        _OPEN.add(self)

    def take(self) -> bool:
        """Try once."""
        return self._session.exec_driver_sql("SELECT pg_try_advisory_lock(%s)", (self._key,)).scalar_one()

    def is_held(self) -> bool:
        """Whether it is still held: not in a forked child, nor after its connection broke. The server is
        queried only if it has sent something unrequested, which mostly means that the session is over."""
        descriptor = self.descriptor()
        if self._process != os.getpid() or descriptor is None:
            return False
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        if poller.poll(0):
            try:
                self._session.exec_driver_sql("SELECT 1")
            except DBAPIError:
                return False
        return True

    def release(self) -> None:
        if self.is_held():
            with suppress(DBAPIError):  # the server frees it only at the session's end or on request
                self._session.exec_driver_sql("SELECT pg_advisory_unlock(%s)", (self._key,))
        self._session.close()

    def descriptor(self) -> int | None:
        if self._session.closed or self._session.invalidated:
            return None
        driver: Any = self._session.connection.dbapi_connection
        return None if driver.closed else driver.fileno()


Lock = _FileLock | _SessionLock
"""A run's lock, held by this process until `release`, or to its end."""
_OPEN: WeakSet[Lock] = WeakSet()


def _key(run_id: str) -> int:
    return int.from_bytes(sha256(f"diagevo run {run_id}".encode()).digest()[:8], signed=True)


def acquire(database: Database, run_id: str, folder: Path) -> Lock:
    """The lock on a run. Raises HeldError, naming the holder, if somebody has it, and StoreError if the file
    system has no locks."""
    try:
        with explained(database):
            on_file = database.dialect == "sqlite"
            lock = _FileLock(folder) if on_file else _SessionLock(database.session(), run_id)
            for _ in range(TRIES):
                if lock.take():
                    return lock
                time.sleep(PAUSE)
            lock.release()
    except OSError as error:
        if error.errno in _WITHOUT_LOCKS:
            raise StoreError(
                f"{folder} is on a file system without locks (flock: {error.strerror})",
                hint="keep the database on a disk of this machine, or use PostgreSQL: --db postgresql://…",
            ) from error
        raise StoreError(
            f"{folder / NAME} cannot be locked: {error.strerror}",
            hint="check that the folder is writable and has free space",
        ) from error
    name, since = _holder(database, run_id, folder) or ("a process that has just ended", "")
    hint = "stop it first, or name another run"
    if name == lock_timeouts.this_process():
        hint = "close the other Memory first; a connection that broke is given up within a minute or two"
    raise HeldError(f"run {run_id} is being written by {name}{since and f', since {since} UTC'}", hint=hint)


def writer(database: Database, run_id: str, folder: Path) -> str | None:
    """Who is writing the run, for people; None if nobody is."""
    found = _holder(database, run_id, folder)
    return None if found is None else found[0]


def _holder(database: Database, run_id: str, folder: Path) -> tuple[str, str] | None:
    """The holder of the lock, and since when, in its own words; None if nobody holds it."""
    if database.dialect == "postgresql":
        with database.read() as connection:
            found = connection.exec_driver_sql(_HOLDER, (_key(run_id),)).one_or_none()
        return None if found is None else (found[0] or "a session without a name", found[1] or "")
    with suppress(OSError), open(folder / NAME, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            name, since, *_ = [*file.read(200).decode(errors="replace").split("\n"), "", ""]
            return visible(name) or "a process without a name", visible(since)
    return None
