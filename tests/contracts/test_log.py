"""The log's promises, each on SQLite and on PostgreSQL."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import QueuePool, text
from sqlalchemy.event import listens_for
from sqlalchemy.exc import DatabaseError

from diagevo.errors import ConflictError, StaleWriterError
from diagevo.memory.events import StageStarted
from diagevo.memory.events.records import GENESIS, Pending, pending
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.contracts.writers import write


def _event(attempt: int, run: str = "a") -> Pending:
    return pending(run, 1, StageStarted(stage="solver", attempt=attempt))


def _positions(log: Log) -> list[int]:
    return [record.position for record in log.read()]


def test_known_and_new_events_may_come_in_one_batch(store: Store) -> None:
    with store.log() as log:
        log.append("a", 0, [_event(1)])
        mixed = log.append("a", 1, [_event(2), _event(1), _event(3), _event(3)])
        assert mixed.positions == [2, 1, 3, 3]
        assert mixed.fresh == [True, False, True, False]
        assert log.head("a").sequence == 3
        assert _positions(log) == [1, 2, 3]


def test_the_same_id_with_other_content_is_refused_and_nothing_is_written(store: Store) -> None:
    known = _event(1)
    changed = Pending(known.event_id, 1, "StageStarted", 1, None, '{"attempt":1,"stage":"other"}', None)
    with store.log() as log:
        log.append("a", 0, [known])
        with pytest.raises(ConflictError, match="with other content"):
            log.append("a", 1, [_event(2), changed])
        assert _positions(log) == [1]
        assert log.append("a", 1, [_event(2)]).positions == [2]


def test_the_same_id_twice_in_one_batch_with_other_content_is_refused(store: Store) -> None:
    once = _event(1)
    changed = Pending(once.event_id, 1, "StageStarted", 1, None, '{"attempt":1,"stage":"other"}', None)
    with store.log() as log:
        with pytest.raises(ConflictError, match="comes twice, with different content"):
            log.append("a", 0, [once, changed])
        assert _positions(log) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("round", 2), ("type", "T"), ("schema_version", 2), ("cause_id", "c1"), ("causation_id", "e")],
)
def test_every_part_of_an_event_belongs_to_its_content(
    sqlite_stores: SQLiteStores, tmp_path: Path, field: str, value: object
) -> None:
    with sqlite_stores.new(tmp_path).log() as log:
        log.append("a", 0, [_event(1)])
        with pytest.raises(ConflictError, match="with other content"):
            log.append("a", 1, [structs.replace(_event(1), **{field: value})])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET payload = '{}' WHERE position = 1",
        "DELETE FROM event WHERE position = 1",
        "UPDATE event SET position = 7 WHERE position = 1",
    ],
)
def test_no_statement_changes_or_removes_an_event(store: Store, statement: str) -> None:
    with store.log() as log:
        log.append("a", 0, [_event(1)])
        with pytest.raises(DatabaseError, match="append-only"), log.database.write() as connection:
            connection.execute(text(statement))
        assert len(_positions(log)) == 1


def test_an_event_cannot_be_replaced(store: Store) -> None:
    with store.log() as log:
        log.append("a", 0, [_event(1)])
        copied = (
            "INSERT {0} INTO event SELECT {1}, round, type, schema_version,"
            " cause_id, '{{}}', causation_id, recorded_at, previous_hash, hash FROM event {2}"
        )
        for same in ("position, 'new', run_id, 9", "2, event_id, run_id, 9", "2, 'new', run_id, sequence"):
            if store.dialect == "sqlite":
                statement = copied.format("OR REPLACE", same, "")
            else:
                statement = copied.format("", same, "ON CONFLICT DO NOTHING")
            if store.dialect == "sqlite":
                with pytest.raises(DatabaseError, match="event exists"), log.database.write() as connection:
                    connection.execute(text(statement))
            else:
                with log.database.write() as connection:
                    connection.execute(text(statement))
        [record] = log.read("a")
        assert record.payload == _event(1).payload


def test_postgresql_refuses_truncate(postgres_stores: PostgresStores, tmp_path: Path) -> None:
    store = postgres_stores.new(tmp_path)
    with store.log() as log:
        log.append("a", 0, [_event(1)])
        with pytest.raises(DatabaseError, match="append-only"), log.database.write() as connection:
            connection.execute(text("TRUNCATE event"))


def test_refused_appends_leave_no_gap(store: Store) -> None:
    with store.log() as log:
        log.append("a", 0, [_event(1)])
        for _ in range(3):
            with pytest.raises(StaleWriterError):
                log.append("a", 0, [_event(2)])

        def fail_after_appending() -> None:
            with log.database.write():
                log.append("a", 1, [_event(2), _event(3)])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_after_appending()
        log.append("a", 1, [_event(4)])
        assert [(r.position, r.sequence) for r in log.read("a")] == [(1, 1), (2, 2)]


def test_a_batch_that_fails_in_the_middle_leaves_nothing(store: Store) -> None:
    impossible = structs.replace(_event(2), round=None)
    with store.log() as log:
        with pytest.raises(DatabaseError):
            log.append("a", 0, [_event(1), impossible, _event(3)])
        assert _positions(log) == []
        assert log.append("a", 0, [_event(1)]).positions == [1]


@pytest.mark.slow
def test_ten_threads_and_four_processes_leave_no_gap(store: Store) -> None:
    count = 8
    command = [sys.executable, "-m", "tests.contracts.writers", store.url]
    processes = [subprocess.Popen([*command, f"process{i}", str(count)]) for i in range(4)]
    with store.log() as log:
        failures: list[BaseException] = []

        def work(name: str) -> None:
            try:
                write(log, name, count)
            except BaseException as error:  # a thread's error must reach the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(f"thread{i}",)) for i in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [p.wait() for p in processes] == [0] * 4
        assert failures == []
        assert _positions(log) == list(range(1, 14 * 2 * count + 1))
        assert [r.sequence for r in log.read("shared")] == list(range(1, 14 * count + 1))
        for name in ("thread3", "process2"):
            assert [r.sequence for r in log.read(name)] == list(range(1, count + 1))
        previous = GENESIS
        for record in log.read("shared"):
            assert record.previous_hash == previous
            previous = record.hash


def test_runs_of_one_database_have_sequences_of_their_own(store: Store) -> None:
    with store.log() as log:
        log.append("a", 0, [_event(1)])
        log.append("b", 0, [_event(1, "b"), _event(2, "b")])
        log.append("a", 1, [_event(2)])
        assert [(r.position, r.sequence) for r in log.read("a")] == [(1, 1), (4, 2)]
        assert [(r.position, r.sequence) for r in log.read("b")] == [(2, 1), (3, 2)]
        assert log.runs() == ["a", "b"]


def test_payload_bytes_are_kept_as_they_are(store: Store) -> None:
    payload = '{"attempt":1,"stage":"\\u0000 ∂x ≤ 1e-6 \\\\boxed{½} 数 \U0001d53d","x":1e400,"y":1.0}'
    event = Pending("id", 1, "StageStarted", 1, None, payload, None)
    with store.log() as log:
        log.append("a", 0, [event])
        [record] = log.read("a")
        assert record.payload.encode() == payload.encode()


def test_events_are_read_by_run_round_type_cause_and_range(store: Store) -> None:
    with store.log() as log:
        for number in range(1, 7):
            event = Pending(
                f"e{number}", number % 3, f"T{number % 2}", 1, f"c{number % 2}", "{}", f"e{number - 1}"
            )
            log.append("a", number - 1, [event])

        def sequences(**chosen) -> list[int]:
            return [record.sequence for record in log.read("a", **chosen)]

        assert sequences(rounds=(1, 1)) == [1, 4]
        assert sequences(types=["T1"]) == [1, 3, 5]
        assert sequences(cause_id="c0") == [2, 4, 6]
        assert sequences(causation_id="e3") == [4]
        assert sequences(after=2, until=4) == [3, 4]
        assert sequences(newest_first=True, limit=2) == [6, 5]
        assert sequences(rounds=(0, 1), types=["T0"], limit=1) == [4]


def test_paging_neither_drops_nor_repeats_an_event(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagevo.memory.log.log.PAGE", 3)
    monkeypatch.setattr("diagevo.memory.log.prepared.PAGE", 3)
    with store.log() as log:
        log.append("a", 0, [_event(n) for n in range(1, 11)])
        assert [r.sequence for r in log.read("a")] == list(range(1, 11))
        assert [r.sequence for r in log.read("a", newest_first=True, limit=7)] == list(range(10, 3, -1))
        assert [f.sequence for f in log.facts("a", after=2, until=9)] == list(range(3, 10))


def test_a_reader_is_not_kept_waiting_by_a_writer(store: Store) -> None:
    with store.log() as log:
        log.append("a", 0, [_event(1)])
        seen = []
        with log.database.write():
            log.append("a", 1, [_event(2)])
            reader = threading.Thread(target=lambda: seen.extend(_positions(log)))
            reader.start()
            reader.join(timeout=30)
        assert seen == [1]
        assert _positions(log) == [1, 2]


def test_a_read_is_one_view_whatever_is_written_meanwhile(store: Store) -> None:
    with store.log() as log, store.log() as other:
        log.append("a", 0, [_event(1)])
        with log.database.view():
            assert log.head("a").sequence == 1
            other.append("a", 1, [_event(2)])
            assert log.head("a").sequence == 1
        assert log.head("a").sequence == 2


@pytest.mark.parametrize("read", ["read", "facts"])
def test_a_stream_is_one_view_and_lets_go_of_the_database_where_it_is_dropped(
    store: Store, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    monkeypatch.setattr("diagevo.memory.log.log.PAGE", 2)
    monkeypatch.setattr("diagevo.memory.log.prepared.PAGE", 2)
    with store.log() as log, store.log() as other:
        pool = log.database.engine.pool
        assert isinstance(pool, QueuePool)
        log.append("a", 0, [_event(n) for n in range(1, 6)])
        stream = getattr(log, read)("a")
        assert next(stream).sequence == 1
        other.append("a", 5, [_event(6)])
        assert [e.sequence for e in stream] == [2, 3, 4, 5]
        dropped = getattr(log, read)("a")
        assert next(dropped).sequence == 1
        assert pool.checkedout() == 1
        del dropped
        assert pool.checkedout() == 0
        assert [e.sequence for e in getattr(log, read)("a")] == [1, 2, 3, 4, 5, 6]


def test_a_view_is_one_moment_for_every_read_and_refuses_a_write(store: Store) -> None:
    with store.log() as log, store.log() as other:
        log.append("a", 0, [_event(1)])
        with log.database.view():
            assert _positions(log) == [1]
            other.append("a", 1, [_event(2)])
            with log.database.view():
                assert (log.head("a").sequence, _positions(log), log.last_position()) == (1, [1], 1)
            assert log.head("a").sequence == 1
            with pytest.raises(RuntimeError, match="a write inside a view"):
                log.append("a", 1, [_event(3)])
        log.append("a", 2, [_event(3)])
        assert log.head("a").sequence == 3
        with log.database.write(), log.database.view():
            log.append("a", 3, [_event(4)])
        assert _positions(log) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("chosen", "index"),
    [
        ({}, "sqlite_autoindex_event_2"),  # run and sequence
        ({"after": 0, "until": 9, "newest_first": True}, "sqlite_autoindex_event_2"),
        ({"types": ["StageStarted"]}, "ix_event_run_type_round"),
        ({"types": ["StageStarted", "CauseMatched"], "newest_first": True}, "ix_event_run_type_round"),
        ({"types": ["StageStarted"], "rounds": (1, 2)}, "ix_event_run_type_round"),
        ({"rounds": (1, 1)}, "ix_event_run_type_round"),
        ({"cause_id": "c1"}, "ix_event_run_cause"),
        ({"causation_id": "e1"}, "ix_event_run_causation"),
    ],
    ids=str,
)
def test_reading_takes_the_index_that_was_made_for_it_and_sorts_nothing(
    sqlite_stores: SQLiteStores, tmp_path: Path, chosen: dict[str, Any], index: str
) -> None:
    """In a run of a million events the wrong one costs a walk through all of them."""
    plans: list[str] = []
    with sqlite_stores.new(tmp_path).log() as log:
        log.append("a", 0, [_event(1)])

        @listens_for(log.database.engine, "before_cursor_execute")
        def explain(connection, cursor, statement, parameters, *_) -> None:
            plans.extend(str(row) for row in cursor.execute("EXPLAIN QUERY PLAN " + statement, parameters))

        list(log.read("a", **chosen))
    assert [plan for plan in plans if index in plan]
    assert [plan for plan in plans if "TEMP B-TREE" in plan] == []


def test_as_many_threads_as_a_service_takes_read_at_once(store: Store) -> None:
    """A pool of fewer connections would keep one waiting for another, and raise after half a minute."""
    database = Database(store.url)
    wanted = 24 if store.dialect == "sqlite" else 12
    together = threading.Barrier(wanted, timeout=90)

    def read(_: int) -> int:
        with database.read() as connection:
            together.wait()
            return connection.execute(text("SELECT 1")).scalar_one()

    with ThreadPoolExecutor(wanted) as threads:
        assert list(threads.map(read, range(wanted))) == [1] * wanted
    database.close()
