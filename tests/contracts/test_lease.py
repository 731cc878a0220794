"""One writer a run, with a fencing number."""

import subprocess
import sys
import time

import pytest
from sqlalchemy import update

from diagevo.errors import StaleWriterError, StoreError
from diagevo.memory.log.database import Database
from diagevo.memory.log.lease import Renewal, writer
from diagevo.memory.log.log import RUN
from tests.contracts.databases import Store
from tests.memory.play import candidate

HOLD = """
import sys, time, pathlib, diagevo
memory = diagevo.open(sys.argv[1], run="a", root=pathlib.Path(sys.argv[2]))
memory.open_round(1)
print("held", flush=True)
sys.stdin.read()
"""


def _holder(store: Store) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", HOLD, store.url, str(store.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_writer_is_refused_and_told_who_holds_the_run_until_that_one_dies(store: Store) -> None:
    holder = _holder(store)
    try:
        with store.open() as memory:
            assert memory.state.open is not None  # reading needs no lease
            with pytest.raises(
                StoreError, match=f"run a is being written by process {holder.pid} on this machine"
            ):
                memory.score([candidate("r1.q0")])
            with store.open("b") as other:
                other.open_round(1)  # another run is free
            holder.kill()
            holder.wait()
            memory.score([candidate("r1.q0")])
    finally:
        holder.kill()
        holder.communicate()


def test_a_writer_whose_lease_was_taken_over_cannot_append(store: Store) -> None:
    with store.open() as zombie, store.open() as heir:
        zombie.open_round(1)
        heir.claim(takeover=True)
        with pytest.raises(StaleWriterError, match="was taken over"):
            zombie.score([candidate("r1.q0")])
        heir.score([candidate("r1.q0")])
        assert heir.log.count("a") == 3


def test_a_lease_that_was_given_back_is_free(store: Store) -> None:
    with store.open() as first:
        first.open_round(1)
    with store.open() as second:
        second.score([candidate("r1.q0")])


def test_each_append_renews_the_lease(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        with memory.database.write() as connection:
            connection.execute(update(RUN).values(renewed_at="2026-01-01T00:00:00.000000+00:00"))
        memory.score([candidate("r1.q0")])
        with memory.database.read() as connection:
            renewed = connection.execute(RUN.select()).one().renewed_at
        assert renewed > "2026-02"


def _set_renewed(database: Database, when: str) -> None:
    with database.write() as connection:
        connection.execute(update(RUN).values(renewed_at=when))


def _renewed(database: Database) -> str:
    with database.read() as connection:
        return connection.execute(RUN.select()).one().renewed_at


OLD = "2026-01-01T00:00:00.000000+00:00"


def test_a_stage_without_appends_does_not_look_like_a_death(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagevo.memory.log.lease.RENEWED", 0.05)
    with store.open() as memory:
        memory.open_round(1)
        _set_renewed(memory.database, OLD)
        deadline = time.monotonic() + 30
        while _renewed(memory.database) == OLD and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _renewed(memory.database) > "2026-02"
    with store.log() as log:
        assert writer(log.database, "a") is None, "it was given back"
        _set_renewed(log.database, OLD)
        time.sleep(0.3)
        assert _renewed(log.database) == OLD, "and is renewed no more"


def test_a_lease_that_was_taken_over_is_not_renewed_by_the_one_who_lost_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.open() as heir:
        heir.open_round(1)
        heir.claim(takeover=True)
        _set_renewed(heir.database, OLD)
        monkeypatch.setattr("diagevo.memory.log.lease.RENEWED", 0.02)
        lost = Renewal(heir.database, "a", 1)
        time.sleep(0.3)
        lost.stop()
        assert _renewed(heir.database) == OLD


def test_a_run_that_is_not_there_is_written_by_nobody(store: Store) -> None:
    with store.log() as log:
        assert writer(log.database, "none") is None
