"""Who holds a run, where process ids are used again, leases are taken at once, and other runs lie beside."""

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import select, update

from diagevo.errors import StoreError
from diagevo.memory.log.database import Database
from diagevo.memory.log.lease import Holder, Renewal, acquire
from diagevo.memory.log.log import RUN, Log
from tests.contracts.databases import Store
from tests.memory.play import candidate


def _row(log: Log, run: str = "a") -> tuple[str | None, int, str | None]:
    with log.database.read() as connection:
        query = select(RUN.c.holder, RUN.c.fence, RUN.c.renewed_at).where(RUN.c.run_id == run)
        return tuple(connection.execute(query).one())  # pyright: ignore[reportReturnType]  (three columns)


def test_a_process_id_that_is_used_again_holds_nothing(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
    with store.log() as log, log.database.write() as connection:
        before = replace(Holder.current(), pid=os.getppid(), began="1")
        connection.execute(update(RUN).values(holder=str(before)))
    with store.open() as memory:
        memory.score([candidate("r1.q0")])


def test_a_killed_process_that_nobody_has_waited_for_holds_nothing() -> None:
    """In a container whose first process does not wait, it stays in the table for good."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stat = f"/proc/{child.pid}/stat"
    with open(stat) as file:
        began = file.read().rpartition(")")[2].split()[19]
    holder = replace(Holder.current(), pid=child.pid, began=began)
    assert holder.runs() is True
    child.kill()
    deadline = time.monotonic() + 10
    while holder.runs() and time.monotonic() < deadline:
        time.sleep(0.01)
    with open(stat) as file:
        assert file.read().rpartition(")")[2].split()[0] == "Z"
    assert holder.runs() is False
    child.communicate()


def test_a_writer_that_lost_its_lease_does_not_free_its_heirs(store: Store) -> None:
    zombie, heir = store.open(), store.open()
    zombie.open_round(1)
    heir.claim(takeover=True)
    held = _row(heir.log)[:2]
    zombie.close()
    assert _row(heir.log)[:2] == held == (str(Holder.current()), 2)
    heir.close()
    with store.log() as log:
        assert _row(log)[:2] == (None, 2)


def test_taking_renewing_and_freeing_a_lease_leave_other_runs_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagevo.memory.log.lease.RENEWED", 0.02)
    other = ("elsewhere:1:2", 1, "2026-01-01T00:00:00+00:00")
    with store.open() as memory:
        memory.open_round(1)
        with memory.database.write() as connection:
            memory.log.create_run(connection, "b")
            values = dict(zip(("holder", "fence", "renewed_at"), other, strict=True))
            connection.execute(update(RUN).where(RUN.c.run_id == "b").values(values))
        renewed = _row(memory.log)[2]
        deadline = time.monotonic() + 10
        while _row(memory.log)[2] == renewed and time.monotonic() < deadline:
            time.sleep(0.02)
        assert _row(memory.log)[2] != renewed
        memory.claim(takeover=True)
        assert _row(memory.log)[1] == 2
        assert _row(memory.log, "b") == other
        with memory.database.write() as connection:  # its fence is that of ours again
            connection.execute(update(RUN).where(RUN.c.run_id == "b").values(fence=2))
    with store.log() as log:
        assert _row(log)[0] is None
        assert _row(log, "b") == (other[0], 2, other[2])


def test_a_renewal_goes_on_after_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagevo.memory.log.lease.RENEWED", 0.02)
    real, failed = Database.write, threading.Event()

    def once(self: Database):
        if threading.current_thread().name == "lease" and not failed.is_set():
            failed.set()
            raise StoreError("the database is locked")
        return real(self)

    with store.log() as log:
        fence = acquire(log, "a")
        with log.database.write() as connection:
            connection.execute(update(RUN).values(renewed_at="2020-01-01T00:00:00+00:00"))
        monkeypatch.setattr(Database, "write", once)
        renewal = Renewal(log.database, "a", fence)
        assert failed.wait(10)
        deadline = time.monotonic() + 10
        while str(_row(log)[2]).startswith("2020") and time.monotonic() < deadline:
            time.sleep(0.02)
        renewal.stop()
        assert str(_row(log)[2])[:4] == str(datetime.now(UTC).year)


def test_takeovers_at_the_same_time_get_a_fence_each(store: Store) -> None:
    with store.log() as log:
        acquire(log, "a")
    fences: list[int] = []

    def take() -> None:
        with store.log() as log:
            fences.extend(acquire(log, "a", takeover=True) for _ in range(10))

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(fences) == list(range(2, 62))
