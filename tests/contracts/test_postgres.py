"""What only PostgreSQL can do to a log: replicas' sessions, and holders that stand still."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from diagevo.errors import StoreError
from diagevo.memory.events import StageStarted
from diagevo.memory.events.records import pending
from diagevo.memory.log import lock_timeouts
from diagevo.memory.log.check import check
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import upgrade
from tests.cli.program import invoke
from tests.contracts.databases import PostgresStores
from tests.ingest.conftest import DATA
from tests.memory.audit.long_run import LongRun

EVENT = pending("a", 1, StageStarted(stage="solver", attempt=1))
CHANGES = ["DELETE FROM event", "UPDATE event SET round = 2", "TRUNCATE event"]


def test_a_session_of_a_replica_changes_no_event(postgres_stores: PostgresStores) -> None:
    database = Database(postgres_stores.empty())

    def changed(change: str) -> None:
        with database.write() as connection:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(text(change))
            connection.rollback()

    upgrade(database)
    Log(database).append("a", 0, [EVENT])
    for change in CHANGES:
        with pytest.raises(DBAPIError, match="event is append-only"):
            changed(change)
    assert all(finding.ok for finding in check(database))
    database.close()


HOLDER = """
import os, signal, sys
from diagevo.errors import StoreError
from diagevo.memory.log import lock_timeouts
from diagevo.memory.log.database import Database
from diagevo.memory.events import StageStarted
from diagevo.memory.log.log import Log
from diagevo.memory.events.records import pending

url, lock_timeouts.IDLE_SECONDS, once = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "once"
database = Database(url)
log = Log(database)
print("ready", flush=True)
number = 0
while number < 100_000:
    try:
        with database.write():
            log.append("b", number, [pending("b", 1, StageStarted(stage="b", attempt=number + 1))])
            if once:
                print("holds", flush=True)
                os.kill(os.getpid(), signal.SIGSTOP)
        number += 1
    except StoreError as error:
        if once:
            print(error.message, error.exit_code, flush=True)
            break
    print(number, flush=True)
"""


@contextmanager
def _holder(url: str, idle_seconds: int, how: str) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-P", "-c", HOLDER, url, str(idle_seconds), how]
    with subprocess.Popen(arguments, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert _line(process) == "ready"
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


def _stopped(process: subprocess.Popen[str]) -> None:
    """Wait until the process stands still."""
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


@pytest.mark.slow
def test_a_holder_with_other_limits_is_named_by_whoever_waits(
    postgres_stores: PostgresStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_stores.new(tmp_path).url
    with _holder(url, 0, "once") as process:  # 0: the server never ends it
        assert _line(process) == "holds"
        _stopped(process)
        monkeypatch.setattr(lock_timeouts, "LOCK_SECONDS", 1)
        database = Database(url)
        with pytest.raises(StoreError) as caught:
            Log(database).append("a", 0, [EVENT])
        assert caught.value.exit_code == 5
        assert f"(diagevo {process.pid} on " in caught.value.message
        assert "in a transaction since 20" in caught.value.message
        assert caught.value.message.endswith("and idle in transaction")
        assert "pg_terminate_backend(" in (caught.value.hint or "")
    assert Log(database).append("a", 0, [EVENT]).positions == [1]
    database.close()


@pytest.mark.slow
def test_a_holder_that_stands_still_is_ended_and_told_so_when_it_wakes(
    postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    url = postgres_stores.new(tmp_path).url
    database = Database(url)
    with _holder(url, 1, "once") as process:
        assert _line(process) == "holds"
        _stopped(process)
        assert Log(database).append("a", 0, [EVENT]).positions == [1]
        process.send_signal(signal.SIGCONT)
        said = _line(process)
    assert said.startswith("this process was idle for 1 s inside a transaction")
    assert said.endswith(" 5")
    assert Log(database).head("b").sequence == 0
    database.close()


def test_a_writer_stopped_at_any_moment_stops_nobody_else(
    postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    url = postgres_stores.new(tmp_path).url
    database = Database(url)
    log = Log(database)
    moments = random.Random(12)
    with _holder(url, 1, "on") as process:
        written = 0
        for attempt in range(1, 11):
            for _ in range(moments.randrange(1, 12)):
                written = int(_line(process))
            process.send_signal(signal.SIGSTOP)
            _stopped(process)
            event = pending("a", 1, StageStarted(stage="a", attempt=attempt))
            assert log.append("a", attempt - 1, [event]).fresh == [True]
            process.send_signal(signal.SIGCONT)
    positions = [record.position for record in log.read()]
    assert positions == list(range(1, len(positions) + 1))
    assert (log.head("a").sequence, log.head("b").sequence >= written) == (10, True)
    database.close()


def test_a_reader_may_take_its_time(
    postgres_stores: PostgresStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_timeouts, "IDLE_SECONDS", 1)
    database = Database(postgres_stores.new(tmp_path).url)
    limit = text("SHOW idle_in_transaction_session_timeout")
    with database.read() as connection:
        assert connection.execute(limit).scalar_one() == "0"
    with database.write() as connection:
        assert connection.execute(limit).scalar_one() == "1s"
    database.close()


@pytest.mark.slow
def test_a_few_events_of_an_old_run_are_found_without_walking_through_later_runs(
    postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    """Events chosen by type stand all over the log, so a planner expects the first soon; an old run's are all
    at its beginning."""
    url = postgres_stores.new(tmp_path).url
    for run, events in (("old", 2_000), ("new", 20_000)):
        LongRun(tmp_path, events, per_round=1_000, causes=20, url=url, run=run).close()
    database = Database(url)
    log = Log(database)

    def walked() -> int:
        """Entries of the index of positions that have been read."""
        with database.write() as connection:
            connection.execute(text("SELECT pg_stat_force_next_flush()"))
        with database.read() as connection:
            query = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'event_pkey'"
            return connection.execute(text(query)).scalar_one()

    with database.write() as connection:
        connection.execute(text("ANALYZE event"))
    before = walked()
    stages = ["StageStarted", "StageCompleted", "StageAbandoned"]
    [last] = log.read("old", types=stages, newest_first=True, limit=1)
    [candidate, _] = log.read("old", types=["CandidateScored"], newest_first=True, limit=2)
    assert (last.type, candidate.type) == ("StageCompleted", "CandidateScored")
    streamed = list(log.read("old", types=stages, newest_first=True))
    assert streamed[0] == last
    assert walked() - before < 100
    database.close()


@pytest.mark.parametrize("how", ["read", "write"])
def test_ctrl_c_inside_the_driver_ends_a_transaction_and_is_no_error_of_the_database(
    postgres_stores: PostgresStores,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """psycopg cannot go on with an answer if the signal came while it read it, and refuses a rollback."""
    database = Database(postgres_stores.empty())
    upgrade(database)

    def interrupted(self: Any, reading: Any, *_: Any, **__: Any) -> Any:
        monkeypatch.undo()
        next(reading)
        reading.close()
        raise KeyboardInterrupt

    def ask() -> None:
        with getattr(database, how)() as connection:
            cursor = connection.connection.cursor()
            monkeypatch.setattr(psycopg.Connection, "wait", interrupted)
            cursor.execute("SELECT pg_sleep(60)")

    with pytest.raises(KeyboardInterrupt):
        ask()
    assert caplog.messages == []
    with database.read() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    database.close()


def test_what_a_role_may_not_do_is_said_and_nothing_is_written(
    postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    store = postgres_stores.new(tmp_path)
    rollouts = DATA / "verl" / "rollouts"
    told = invoke(
        "ingest", "verl", rollouts, "--run", "a", "--db", store.reading, env={"DIAGEVO_HOME": f"{tmp_path}"}
    )
    assert told.exit_code == 5
    assert "does not allow it: permission denied for table" in told.stderr
    with store.log() as log:
        assert log.last_position() == 0


def test_a_stream_that_is_dropped_after_its_session_ended_prints_nothing(
    postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    store = postgres_stores.new(tmp_path)
    with store.open() as memory:
        memory.open_round(1)
        stream = memory.log.read("a")
        assert next(stream).type == "RunConfigured"
        with psycopg.connect(store.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert isinstance(stream, Generator)
        stream.close()  # as Python does with a stream that nobody holds; what it raised then would be printed
        assert [event.type for event in memory.log.read("a")] == ["RunConfigured", "RoundOpened"]
