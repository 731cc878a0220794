"""What an append and a read promise at their edges, on SQLite and on PostgreSQL."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from diagevo.errors import OutOfOrderError, StaleWriterError, StoreError
from diagevo.memory.events import StageCompleted, StageStarted
from diagevo.memory.events.records import Pending, pending
from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import prepare
from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.memory.play import candidate, failure


def _event(attempt: int, run: str = "a") -> Pending:
    return pending(run, 1, StageStarted(stage="solver", attempt=attempt))


@pytest.mark.parametrize(
    ("expected", "known"), [(2, []), (0, []), (0, [1])], ids=["ahead", "stale", "stale, something known"]
)
def test_a_writer_that_expects_another_end_of_the_log_is_refused(
    store: Store, expected: int, known: list[int]
) -> None:
    with store.log() as log:
        log.append("a", 0, [_event(1)])
        with pytest.raises(StaleWriterError, match=f"at sequence 1, this writer expected {expected}"):
            log.append("a", expected, [_event(n) for n in (*known, 2)])
        assert [r.sequence for r in log.read("a")] == [1]


def test_many_known_events_keep_their_positions(store: Store) -> None:
    events = [_event(n) for n in range(1, 1102)]
    with store.log() as log:
        first = log.append("a", 0, events)
        assert log.append("a", 0, events).positions == first.positions == list(range(1, 1102))


def test_what_is_known_keeps_its_position_in_the_database_and_its_run_its_head(store: Store) -> None:
    with store.log() as log:
        log.append("b", 0, [_event(1, "b")])
        log.append("a", 0, [_event(1), _event(2)])
        head = log.head("a")
        assert log.append("a", 2, [_event(2)])[:2] == ([3], [False])
        assert log.append("a", 0, [_event(1)])[:2] == ([2], [False])
        assert log.head("a") == head


def test_a_choice_is_made_among_the_events_of_a_run_or_of_all(store: Store) -> None:
    with store.log() as log:
        for n, run in enumerate("abab", 1):
            log.append(run, (n - 1) // 2, [Pending(f"e{n}", 1, "T", 1, "c1", "{}", None)])
        choices: list[dict[str, Any]] = [{"types": ["T"]}, {"cause_id": "c1"}, {"rounds": (1, 1)}]
        for chosen in choices:
            assert [r.position for r in log.read("a", **chosen)] == [1, 3]
            assert [r.position for r in log.read(after=1, until=3, **chosen)] == [2, 3]


def test_facts_come_in_the_order_of_the_run_whatever_their_types(store: Store) -> None:
    completed = pending("a", 1, StageCompleted(stage="solver", attempt=1))
    with store.log() as log:
        log.append("a", 0, [_event(1), completed, _event(2)])
        assert [(f.sequence, f.type) for f in log.facts("a")] == [
            (1, "StageStarted"),
            (2, "StageCompleted"),
            (3, "StageStarted"),
        ]


def test_two_streams_go_on_side_by_side_in_one_transaction(store: Store) -> None:
    with store.log() as log:
        log.append("a", 0, [_event(1), _event(2)])
        with log.database.write():
            pairs = zip(log.facts("a"), log.facts("a"), strict=True)
            assert [(left.sequence, right.sequence) for left, right in pairs] == [(1, 1), (2, 2)]


def test_postgresql_keeps_what_of_a_stream_was_not_asked_for(
    postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    """A cursor without a name would have all of a long log in memory."""
    with postgres_stores.new(tmp_path).log() as log:
        log.append("a", 0, [_event(n) for n in range(1, 4)])
        for streamed in (log.facts, log.read):
            with log.database.view(), log.database.read() as connection:
                stream = streamed("a")
                next(stream)
                held = connection.execute(text("SELECT count(*) FROM pg_cursors")).scalar_one()
                assert held == 1
                assert len(list(stream)) == 2


def test_a_stream_that_the_database_refuses_tells_where(store: Store) -> None:
    with store.log() as log:
        log.append("a", 0, [_event(1)])
        with log.database.write() as connection:
            connection.execute(text("ALTER TABLE event RENAME TO gone"))
        with pytest.raises((StoreError, DatabaseError), match="event"):
            list(log.facts("a"))


def test_a_read_inside_a_write_sees_what_was_written(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        before = memory.log.count("a")
        with memory.atomic():
            memory.score([candidate("r1.q0")])
            assert memory.log.count("a") == before + 1


@pytest.mark.parametrize(("setting", "number"), [("NORMAL", 1), ("FULL", 2)])
def test_sqlite_keeps_what_was_asked_for(
    sqlite_stores: SQLiteStores, tmp_path: Path, setting: str, number: int
) -> None:
    database = Database(sqlite_stores.new(tmp_path).url, synchronous=setting)  # pyright: ignore[reportArgumentType]  (a Literal, from a list)
    with database.write() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == number
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
    database.close()


def test_postgresql_takes_the_rights_to_change_the_log_from_whoever_has_them(
    postgres_stores: PostgresStores,
) -> None:
    """By default nobody has them; a server may be set up to give them to all."""
    database = Database(postgres_stores.empty())
    with database.write() as connection:
        connection.execute(text("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC"))
    prepare(database, create=True)
    query = text("SELECT has_table_privilege('pg_monitor', 'event', :right)")
    with database.read() as connection:
        rights = {
            right: connection.execute(query, {"right": right}).scalar_one()
            for right in ("SELECT", "UPDATE", "DELETE", "TRUNCATE")
        }
    database.close()
    assert rights == {"SELECT": True, "UPDATE": False, "DELETE": False, "TRUNCATE": False}


def test_a_refused_verb_fails_the_whole_transaction_even_where_the_refusal_is_caught(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        memory.score([candidate("r1.q0"), candidate("r1.q1", 12)])
        events = memory.log.count("a")

        def go_on_after_a_refusal() -> None:
            with memory.atomic():
                memory.observe([failure("r1.q0.a0")])
                with suppress(OutOfOrderError):
                    memory.observe([failure("r1.q0.a1"), failure("r1.q1.a0")])

        with pytest.raises(OutOfOrderError):
            go_on_after_a_refusal()
        assert (memory.log.count("a"), memory.undiagnosed()) == (events, [])
