"""One writer a run: a lease with a fencing number, in the run's row.

Taking a lease raises the fence; every append names the fence it was given and is refused once another
writer has raised it. So two writers never mix, whatever is believed of a holder. What is believed decides
only who waits: a holder that this process can see (same start of the machine, same process ids) is there or
gone; any other one is gone once it has not renewed its lease for a while by the observer's own steady clock.
No two clocks are ever compared.
"""

import logging
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from sqlalchemy import select, update
from sqlalchemy.exc import SQLAlchemyError

from diagevo.errors import DiagEvoError, HeldError
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import RUN, Log, now

RENEWED = 15.0
"""Seconds between two renewals: a stage may take hours without an append."""
SILENT = 90.0
"""A holder that cannot be seen counts as gone after so many seconds without an append or a renewal. (Versions
before this one renewed once a minute.)"""
LOOK = 1.0
"""Seconds between two looks at a holder that cannot be seen."""
_HERE = uuid4().hex
"""Tells this process from others where the system does not say when a process began."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process: machine, process id, when it began (process ids are used again), and the start of the
    machine and the container that the process id belongs to (host names are used again)."""

    host: str
    pid: int
    began: str
    boot: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        return ":".join((self.host, str(self.pid), self.began, self.boot, self.namespace))

    @classmethod
    def parse(cls, text: str) -> "Holder":
        """Also of a version that wrote three fields; what no version wrote is a holder that nobody can
        see."""
        host, _, rest = text.partition(":")
        pid, *more = rest.split(":")
        if not (pid.isdecimal() and len(pid) < 20 and len(more) in (1, 3)):
            return cls(text, 0, "")
        return cls(host, int(pid), *more)

    @classmethod
    def current(cls) -> "Holder":
        host = socket.gethostname().replace(":", "-")
        return cls(host, os.getpid(), _began(os.getpid()) or _HERE, *_place())

    def runs(self) -> bool | None:
        """Whether the process runs; None where this process cannot see it."""
        place = _place()
        if not all(place) or (self.boot, self.namespace) != place:
            return None
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            pass  # it runs, and is somebody else's
        began = _began(self.pid)
        return None if began is None else began == self.began

    def where(self) -> str:
        if self.runs() is not None:
            return f"process {self.pid} on this machine"
        place = f"process {self.pid} on {self.host}"
        return f"{place} (a container, or before a restart)" if self.host == socket.gethostname() else place


def _place() -> tuple[str, str]:
    """The start of this machine and the process ids' namespace; empty where /proc does not tell, or tells of
    another namespace."""
    try:
        if os.readlink("/proc/self") != str(os.getpid()):
            return "", ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink("/proc/self/ns/pid").removeprefix("pid:[").removesuffix("]")
    except OSError:
        return "", ""


def _began(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot, None where the system does not tell it. Empty for a
    process that was killed and that its parent has not waited for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]


class Watch:
    """Whether a run is held, as one observer comes to know it by looking again and again."""

    def __init__(self, database: Database, run_id: str) -> None:
        self._database = database
        self._run_id = run_id
        self._seen: Any = None
        self._since = 0.0
        self._renewed = False

    def look(self) -> bool | None:
        """True: held, by a process that runs or was seen to renew its lease. False: free. None: not known
        yet."""
        return self.judge(_row(self._database, self._run_id))

    def judge(self, row: Any) -> bool | None:
        """What a look at the run's row says, after the looks before it."""
        if row is None or row.holder is None:
            return False
        holder = Holder.parse(row.holder)
        if (runs := holder.runs()) is not None:
            return runs
        if tuple(row) != self._seen:
            self._renewed = self._seen is not None
            self._seen, self._since = tuple(row), monotonic()
        elif monotonic() - self._since >= SILENT:
            return False
        return True if self._renewed else None


_STAND = (RUN.c.holder, RUN.c.fence, RUN.c.renewed_at)


def _row(database: Database, run_id: str) -> Any:
    with database.read() as connection:
        return connection.execute(select(*_STAND).where(RUN.c.run_id == run_id)).one_or_none()


def acquire(log: Log, run_id: str, *, takeover: bool = False) -> int:
    """Take the lease on a run; the fencing number. Raises StoreError, naming the holder, where it is held.

    Waits for up to `SILENT` seconds where it cannot see whether the holder runs.
    """
    watch = Watch(log.database, run_id)
    if not takeover:
        _wait(watch, log.database, run_id)
    with log.database.write() as connection:
        log.lock(connection)
        row = connection.execute(select(*_STAND).where(RUN.c.run_id == run_id)).one_or_none()
        if row is None:
            log.create_run(connection, run_id)
        elif not takeover and not _is_ours(row) and watch.judge(row) is not False:
            raise _held(run_id, row)
        fence = 1 if row is None else row.fence + 1
        values = {"holder": str(Holder.current()), "fence": fence, "renewed_at": now()}
        connection.execute(update(RUN).where(RUN.c.run_id == run_id).values(values))
    return fence


def _is_ours(row: Any) -> bool:
    return row is not None and row.holder == str(Holder.current())


def _wait(watch: Watch, database: Database, run_id: str) -> None:
    told = False
    while not _is_ours(row := _row(database, run_id)) and (held := watch.judge(row)) is not False:
        if held:
            raise _held(run_id, row)
        if not told:
            logging.getLogger(__name__).warning(
                "run %s is held by %s, which cannot be seen from here: watching for %.0f s whether it renews"
                " its lease",
                run_id,
                Holder.parse(row.holder).where(),
                SILENT,
            )
            told = True
        sleep(LOOK)


def _held(run_id: str, row: Any) -> HeldError:
    holder = Holder.parse(row.holder)
    seen = "" if holder.runs() is not None else f", last seen {row.renewed_at}"
    return HeldError(
        f"run {run_id} is being written by {holder.where()}{seen}", hint="stop it first, or name another run"
    )


def writer(database: Database, run_id: str) -> str | None:
    """Who writes the run, for people; None where nobody does. A process that cannot be seen is named with the
    time of its last renewal, by its own clock."""
    row = _row(database, run_id)
    if row is None or row.holder is None:
        return None
    holder = Holder.parse(row.holder)
    name = f"{holder.host}:{holder.pid}"
    runs = holder.runs()
    if runs is None:
        return f"{name}, last seen {row.renewed_at[:19].replace('T', ' ')}"
    return name if runs else None


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
            except (DiagEvoError, SQLAlchemyError):
                continue  # The writer meets it too and tells of it; the next renewal may succeed.


def release(log: Log, run_id: str, fence: int) -> None:
    """Give the lease back, if it is still ours."""
    with log.database.write() as connection:
        freed = update(RUN).where(RUN.c.run_id == run_id, RUN.c.fence == fence).values(holder=None)
        connection.execute(freed)
