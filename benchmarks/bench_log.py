"""Rows 1 to 3 of the promises: append in batches, append one a transaction, replay.

Every side of an append starts from a copy of the same empty, migrated file, is opened with the same pragmas,
has the same columns and indexes, and writes the same number of events a transaction. What is counted:

- raw: BEGIN IMMEDIATE, the bare driver's `executemany` of finished rows, COMMIT; no triggers.
- SQLModel: an `EventRow` an event, `Session.add_all`, `Session.commit`; no triggers.
- ours: `Log.append` of wrapped events (`Pending`: id and payload made). It adds to raw what the log promises:
  the heads, expected version, unique ids, positions and sequences, chain, triggers.
- eventsourcing: from a call to the log on both sides, in that library's own SQLite tables (one index, no
  chain, no triggers). It: `Failures.observe(...)` an event, `Application.save` a batch. Ours:
  `FailureObserved(...)` of the same fields, `pending`, `Log.append`.

A replay is, raw: the bare driver over type and payload in the table's order, msgspec into dictionaries,
counted by type. Ours: the memory's state, every consequence checked.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.rows import Row, at_most, cpu_seconds, faster, side_by_side
from diagevo.memory.events import FailureObserved
from diagevo.memory.events.records import Pending, Recorded, pending
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import prepare
from diagevo.memory.state.projection import load
from tests.memory.audit.long_run import DIGEST, LongRun, played_events

BATCH = 500
EVENTS = 10_000
SINGLE = 1_000
REPEAT = 11
LONG = 1_000_000
_INSERT = f"INSERT INTO event VALUES ({', '.join('?' * 13)})"


class _Appends:
    """The sides of an append: `count` events, `size` a transaction. Each prepares and gives its work."""

    def __init__(self, folder: Path, size: int, count: int, closing: ExitStack) -> None:
        self._folder, self._size, self._count, self._closing = folder, size, count, closing
        self._made = 0
        template = Database(str(folder / "template.db"))
        prepare(template, create=True)
        template.close()
        self._events = played_events(count)
        log = self._log()
        log.append("a", 0, self._events)
        self._records: list[Recorded] = list(log.read("a"))

    def _database(self, *, triggers: bool) -> Database:
        self._made += 1
        copy = self._folder / f"{self._made}.db"
        shutil.copy(self._folder / "template.db", copy)
        database = Database(str(copy))
        self._closing.callback(database.close)
        if not triggers:
            with database.write() as connection:
                query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
                for (name,) in connection.exec_driver_sql(query).fetchall():
                    connection.exec_driver_sql(f"DROP TRIGGER {name}")
        return database

    def _log(self) -> Log:
        return Log(self._database(triggers=True))

    def _batches(self, given: Sequence[Any]) -> list[Sequence[Any]]:
        return [given[start : start + self._size] for start in range(0, len(given), self._size)]

    def _driver(self) -> Any:
        """The bare driver's connection to a file without triggers, with our pragmas."""
        return self._database(triggers=False).engine.raw_connection().driver_connection

    def raw(self) -> Callable[[], None]:
        driver = self._driver()
        batches = self._batches([msgspec.structs.astuple(record) for record in self._records])

        def work() -> None:
            for batch in batches:
                driver.execute("BEGIN IMMEDIATE")
                driver.executemany(_INSERT, batch)
                driver.execute("COMMIT")

        return work

    def ours(self) -> Callable[[], None]:
        log, batches = self._log(), self._batches(self._events)

        def work() -> None:
            sequence = 0
            for batch in batches:
                log.append("a", sequence, batch)
                sequence += len(batch)

        return work

    def sqlmodel(self) -> Callable[[], None]:
        from sqlalchemy import StaticPool
        from sqlmodel import Session, create_engine

        from diagevo.memory.log.tables import EventRow

        driver = self._driver()
        driver.isolation_level = ""  # the driver's default: it begins a transaction at the first insert
        engine = create_engine("sqlite://", creator=lambda: driver, poolclass=StaticPool)
        batches = self._batches([msgspec.structs.asdict(record) for record in self._records])

        def work() -> None:
            for batch in batches:
                with Session(engine) as session:
                    session.add_all(EventRow(**fields) for fields in batch)
                    session.commit()

        return work

    def library(self) -> Callable[[], None]:
        from eventsourcing.application import Application

        from benchmarks.library import Failures

        self._made += 1
        store = {
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(self._folder / f"{self._made}.db"),
        }
        application = Application(env=store)
        self._closing.callback(application.close)

        def work() -> None:
            aggregate = Failures()
            for numbers in self._batches(range(self._count)):
                for n in numbers:
                    aggregate.observe(f"r1.q{n}.a0", f"r1.q{n}", "solver", 1, n, DIGEST, DIGEST)
                application.save(aggregate)

        return work

    def ours_from_calls(self) -> Callable[[], None]:
        log = self._log()

        def work() -> None:
            sequence = 0
            for numbers in self._batches(range(self._count)):
                batch: list[Pending] = []
                for n in numbers:
                    event = FailureObserved(
                        failure_id=f"r1.q{n}.a0",
                        question_id=f"r1.q{n}",
                        stage="solver",
                        attempt=1,
                        step=n,
                        trajectory=DIGEST,
                        reference=DIGEST,
                    )
                    batch.append(pending("a", 1, event))
                log.append("a", sequence, batch)
                sequence += len(batch)

        return work


def _append_rows() -> list[Row]:
    unit = "µs an event"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        batched = _Appends(Path(folder), BATCH, EVENTS, closing)
        sides = {
            "raw": batched.raw,
            "ours": batched.ours,
            "sqlmodel": batched.sqlmodel,
            "library": batched.library,
            "ours from calls": batched.ours_from_calls,
        }
        took = {name: s / EVENTS * 1e6 for name, s in side_by_side(sides, repeat=REPEAT).items()}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as closing:
        single = _Appends(Path(folder), 1, SINGLE, closing)
        sides = {"raw": single.raw, "ours": single.ours}
        alone = {name: s / SINGLE * 1e6 for name, s in side_by_side(sides, repeat=REPEAT).items()}
    what, library = f"append, {BATCH} a transaction", "eventsourcing observe + save"
    return [
        faster(what, took["ours"], took["raw"], "raw executemany", 0.5, unit),
        faster(what, took["ours"], took["sqlmodel"], "SQLModel add_all", 5, unit),
        faster(f"{what}, from a call", took["ours from calls"], took["library"], library, 1.3, unit),
        faster("append, one a transaction", alone["ours"], alone["raw"], "raw executemany", 0.3, unit),
    ]


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
        sides = {
            "raw": lambda: lambda: _replay_raw(run.path),
            "ours": lambda: lambda: load(run.log, "long", snapshots=False),
        }
        took = side_by_side(sides, repeat=3)
        raw, ours = took["raw"], took["ours"]
        whole = load(run.log, "long", snapshots=False)
        snapshot = cpu_seconds(lambda: load(run.log, "long"), repeat=3) * 1e3
        assert load(run.log, "long") == whole
        events = whole.sequence
        run.close()
    note = f"{events:,} events, {len(whole.causes)} causes"
    return [
        faster("replay into the state", ours, raw, "sqlite3 + msgspec", 0.5, "CPU s", note),
        at_most("replay of a million events", ours / events * 1e6, "CPU s", 4, note),
        at_most("state from the last snapshot", snapshot, "ms", 5, note),
    ]


def rows() -> list[Row]:
    return [*_append_rows(), *_replay_rows()]
