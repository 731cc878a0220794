"""Rows 1 to 3 of the promises: append in batches, append one a transaction, replay.

The reference of the appends is the bare driver, `executemany` of finished tuples into a table of the same
columns and indexes, without triggers. Ours adds what the log promises: expected version, unique ids, chain,
hashes, triggers. (What it takes to wrap an event object is a row of its own.)
"""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from diagevo.memory.database import Database
from diagevo.memory.log import Log
from diagevo.memory.migrate import prepare
from diagevo.memory.projection import load
from diagevo.memory.records import Pending, Recorded
from tests.benchmarks.long_run import DIGEST, LongRun, played_events
from tests.benchmarks.rows import Row, at_most, cpu_seconds, faster

BATCH = 500
EVENTS = 20_000
SINGLE = 1_500
LONG = 1_000_000


def _database(folder: Path, name: str) -> Database:
    database = Database(str(folder / name))
    prepare(database, create=True)
    return database


def _bare_copy(folder: Path, name: str) -> sqlite3.Connection:
    """The migrated schema in a file of its own, without triggers, written by the bare driver."""
    _database(folder, name).close()
    connection = sqlite3.connect(folder / name, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    return connection


_INSERT = f"INSERT INTO event VALUES ({', '.join('?' * 13)})"


def _append_raw(connection: sqlite3.Connection, rows: Sequence[tuple], size: int) -> None:
    for start in range(0, len(rows), size):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_INSERT, rows[start : start + size])
        connection.execute("COMMIT")


def _append_ours(log: Log, events: Sequence[Pending], size: int) -> None:
    sequence = 0
    for start in range(0, len(events), size):
        sequence = log.append("a", sequence, events[start : start + size]).sequence


def _append_orm(folder: Path, records: Sequence[Recorded], size: int) -> Callable[[], None]:
    from sqlmodel import Session

    from diagevo.memory.tables import EventRow

    database = _database(folder, "orm.db")
    engine = database.engine

    def work() -> None:
        for start in range(0, len(records), size):
            with Session(engine) as session:
                session.add_all(
                    EventRow(**msgspec.structs.asdict(record)) for record in records[start : start + size]
                )
                session.commit()

    return work


def _append_eventsourcing(folder: Path, count: int, size: int) -> Callable[[], None]:
    """One aggregate, `size` events a save, its SQLite store: what that library's user would write."""
    from eventsourcing.application import Application

    from tests.benchmarks.library import Failures

    application = Application(
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "library.db")}
    )

    def work() -> None:
        aggregate = Failures()
        for start in range(0, count, size):
            for number in range(start, min(start + size, count)):
                aggregate.observe(f"r1.q{number}.a0", f"r1.q{number}", "solver", 1, number, DIGEST, DIGEST)
            application.save(aggregate)

    return work


def _appends(folder: Path, size: int, count: int) -> Iterator[tuple[str, float]]:
    events = played_events(count)
    seed = Log(_database(folder, "rows.db"))
    _append_ours(seed, events, BATCH)
    records = list(seed.read("a"))
    rows = [msgspec.structs.astuple(record) for record in records]
    yield "raw", cpu_seconds(lambda: _append_raw(_bare_copy(folder, "raw.db"), rows, size)) - _made(folder)
    ours = Log(_database(folder, "ours.db"))
    yield "ours", cpu_seconds(lambda: _append_ours(ours, events, size))
    yield "orm", cpu_seconds(_append_orm(folder, records, size))
    yield "library", cpu_seconds(_append_eventsourcing(folder, len(records), size))


def _made(folder: Path) -> float:
    """What making an empty database costs, to be taken off where it is inside a measurement."""
    return cpu_seconds(lambda: _bare_copy(folder, "made.db").close())


def _append_rows() -> list[Row]:
    rows = []
    for size, count, target in ((BATCH, EVENTS, 0.5), (1, SINGLE, 0.3)):
        with tempfile.TemporaryDirectory() as folder:
            seconds = {name: s / count * 1e6 for name, s in _appends(Path(folder), size, count)}
        what = f"append, {size} a transaction" if size > 1 else "append, one a transaction"
        rows.append(faster(what, seconds["ours"], seconds["raw"], "raw executemany", target, "µs an event"))
        if size > 1:
            rows.append(faster(what, seconds["ours"], seconds["orm"], "SQLModel add_all", 5, "µs an event"))
            name = "eventsourcing Application.save"
            rows.append(faster(what, seconds["ours"], seconds["library"], name, 2.5, "µs an event"))
    return rows


def _replay_raw(path: Path) -> int:
    """The bare driver and msgspec, counting types into a dictionary."""
    decode = msgspec.json.Decoder().decode
    counts: dict[Any, int] = {}
    connection = sqlite3.connect(path)
    for type_, payload in connection.execute("SELECT type, payload FROM event ORDER BY position"):
        decode(payload)
        counts[type_] = counts.get(type_, 0) + 1
    connection.close()
    return sum(counts.values())


def _replay_rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        run = LongRun(Path(folder), LONG)
        raw = cpu_seconds(lambda: _replay_raw(run.path))
        ours = cpu_seconds(lambda: load(run.log, "long", snapshots=False))
        whole = load(run.log, "long", snapshots=False)
        snapshot = cpu_seconds(lambda: load(run.log, "long"), repeat=3) * 1e3
        assert load(run.log, "long") == whole
        events = whole.sequence
        run.close()
    note = f"{events:,} events, {len(whole.causes)} causes"
    return [
        faster(
            "replay into the state",
            ours / events * 1e6,
            raw / events * 1e6,
            "sqlite3 + msgspec",
            0.5,
            "µs an event",
            note,
        ),
        at_most("replay of a million events", ours / events * 1e6, "CPU s", 6, note),
        at_most("state from the last snapshot", snapshot, "ms", 50, note),
    ]


def rows() -> list[Row]:
    return [*_append_rows(), *_replay_rows()]
