"""One writer a run: a lease with a fencing number, in the run's row.

Taking a lease raises the fence; every append names the fence it was given and is refused once another
writer has raised it. A lease is free when it was released, when its holder was this process, or died on
this machine, or (on another machine) has neither written nor renewed it for a while.
"""

import os
import socket
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import select, update

from diagevo.errors import DiagEvoError, StoreError
from diagevo.memory.database import Database
from diagevo.memory.log import RUN, Log, now

EXPIRES = timedelta(minutes=10)
"""A holder on another machine counts as gone after so long without an append or a renewal."""
RENEWED = 60.0
"""Seconds between two renewals: a stage may take hours without an append."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process: machine, process id, and when it began (process ids are used again)."""

    host: str
    pid: int
    began: str

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.began}"

    @classmethod
    def parse(cls, text: str) -> "Holder":
        host, pid, began = text.rsplit(":", 2)
        return cls(host, int(pid), began)

    @classmethod
    def current(cls) -> "Holder":
        return cls(socket.gethostname(), os.getpid(), _began(os.getpid()))

    def alive(self) -> bool:
        """Whether the process runs, for a holder on this machine."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass  # it runs, and is somebody else's
        return _began(self.pid) == self.began


def _began(pid: int) -> str:
    """Start time of a process in clock ticks since boot, where the system tells it; else an empty text, as
    for one that was killed and that its parent has not waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


def acquire(log: Log, run_id: str, *, takeover: bool = False) -> int:
    """Take the lease on a run; the fencing number. Raises StoreError, naming the holder, where it is held."""
    me = Holder.current()
    with log.database.write() as connection:
        log.lock(connection)
        row = connection.execute(
            select(RUN.c.holder, RUN.c.fence, RUN.c.renewed_at).where(RUN.c.run_id == run_id)
        ).one_or_none()
        if row is None:
            log.create_run(connection, run_id)
            fence = 1
        else:
            if row.holder is not None and not takeover:
                _refuse_where_held(run_id, Holder.parse(row.holder), me, row.renewed_at)
            fence = row.fence + 1
        values = {"holder": str(me), "fence": fence, "renewed_at": now()}
        connection.execute(update(RUN).where(RUN.c.run_id == run_id).values(values))
    return fence


def _refuse_where_held(run_id: str, holder: Holder, me: Holder, renewed_at: str) -> None:
    if holder == me or not _is_there(holder, renewed_at):
        return
    where = f"process {holder.pid} on this machine"
    if holder.host != me.host:
        where = f"process {holder.pid} on {holder.host}, last seen {renewed_at}"
    raise StoreError(f"run {run_id} is being written by {where}", hint="stop it first, or name another run")


def _is_there(holder: Holder, renewed_at: str) -> bool:
    if holder.host == socket.gethostname():
        return holder.alive()
    return datetime.fromisoformat(now()) - datetime.fromisoformat(renewed_at) <= EXPIRES


def writer(database: Database, run_id: str) -> Holder | None:
    """Who writes the run now; None where nobody does, or where there is no such run yet."""
    with database.read() as connection:
        query = select(RUN.c.holder, RUN.c.renewed_at).where(RUN.c.run_id == run_id)
        row = connection.execute(query).one_or_none()
    if row is None or row.holder is None:
        return None
    holder = Holder.parse(row.holder)
    return holder if _is_there(holder, row.renewed_at) else None


class Renewal:
    """Renews a lease in the background until `stop`, so that a long stage does not look like a death."""

    def __init__(self, database: Database, run_id: str, fence: int) -> None:
        self._database = database
        self._run_id = run_id
        self._fence = fence
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._over.wait(RENEWED):
            ours = (RUN.c.run_id == self._run_id) & (RUN.c.fence == self._fence)
            try:
                with self._database.write() as connection:
                    connection.execute(update(RUN).where(ours).values(renewed_at=now()))
            except DiagEvoError:
                continue  # The writer meets it too and tells of it; the next renewal may succeed.


def release(log: Log, run_id: str, fence: int) -> None:
    """Give the lease back, if it is still ours."""
    with log.database.write() as connection:
        freed = update(RUN).where(RUN.c.run_id == run_id, RUN.c.fence == fence).values(holder=None)
        connection.execute(freed)
