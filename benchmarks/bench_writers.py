"""Writers of different runs on one PostgreSQL: events a second of 1, 2, 4 and 8 of them.

Each writer is a process with a connection and a run of its own, and appends one event a transaction for
SECONDS. Beside them, raw: as many processes, each of which inserts a finished row and commits, with the
driver alone: no heads, no positions, no lock. Both wait for the disk at each commit, as the server does by
default.

The disk is one that takes 5 ms (the server's `commit_delay`), as one that is reached by a network does: with
one that takes 0.1 ms two cores are busy with two writers, whatever the log does.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import psycopg
from msgspec import structs

from benchmarks.rows import Row
from diagevo.memory.events import StageStarted
from diagevo.memory.events.records import pending
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.text.numbers import count as counted
from tests.contracts.databases import PostgresServer, PostgresStores

SECONDS = 5.0
WRITERS = (1, 2, 4, 8)
REPEAT = 3
FLUSH_MICROSECONDS = 5000
TARGET = 4.0
"""Of 8 writers over one."""

Writer = Callable[[str, int, Barrier, "Queue[float]"], None]


def _rate(append: Callable[[int], object], ready: Barrier) -> float:
    """Events a second, from the moment when all writers are ready."""
    append(1)
    ready.wait()
    began, number = time.monotonic(), 1
    while (passed := time.monotonic() - began) < SECONDS:
        number += 1
        append(number)
    return (number - 1) / passed


def _ours(url: str, writer: int, ready: Barrier, rates: "Queue[float]") -> None:
    run, database = f"w{writer}", Database(url)
    log = Log(database)

    def append(number: int) -> None:
        log.append(run, number - 1, [pending(run, 1, StageStarted(stage="solver", attempt=number))])

    rates.put(_rate(append, ready))
    database.close()


def _raw(url: str, writer: int, ready: Barrier, rates: "Queue[float]") -> None:
    with psycopg.connect(url) as connection:
        columns = [
            column.name for column in connection.execute("SELECT * FROM event LIMIT 0").description or ()
        ]
        statement = f"INSERT INTO event VALUES ({', '.join(['%s'] * len(columns))})".encode()

        def append(number: int) -> None:
            event = pending(f"w{writer}", 1, StageStarted(stage="solver", attempt=number))
            row = structs.asdict(event) | {
                "position": writer * 10_000_000 + number,
                "run_id": f"w{writer}",
                "sequence": number,
                "recorded_at": "2026-01-01T00:00:00.000000+00:00",
                "previous_hash": "0" * 64,
                "hash": "0" * 64,
            }
            connection.execute(statement, [row[column] for column in columns])
            connection.commit()

        rates.put(_rate(append, ready))


def _together(writer: Writer, url: str, count: int) -> float:
    """Events a second of `count` writers at once."""
    spawn = multiprocessing.get_context("spawn")
    ready, rates = spawn.Barrier(count), spawn.Queue()
    processes = [spawn.Process(target=writer, args=(url, number, ready, rates)) for number in range(count)]
    for process in processes:
        process.start()
    total = sum(rates.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    return total


def rows() -> list[Row]:
    best: dict[tuple[str, int], float] = {}
    sides: dict[str, Writer] = {"ours": _ours, "raw": _raw}
    with tempfile.TemporaryDirectory() as folder:
        server = PostgresServer(Path(folder))
        stores = PostgresStores(server)
        stores.set(commit_delay=FLUSH_MICROSECONDS, commit_siblings=0)
        for _ in range(REPEAT):
            for count in WRITERS:
                for name, writer in sides.items():
                    url = stores.new(Path(folder)).url.replace("+psycopg", "")
                    found = _together(writer, url, count)
                    best[name, count] = max(best.get((name, count), 0.0), found)
        server.stop()
    one = best["ours", 1]
    return [
        Row(
            f"{counted(count, 'writer')}, each of a run of its own, PostgreSQL",
            best["ours", count],
            "events/s",
            best["raw", count],
            "raw inserts",
            best["ours", count] / one,
            f"≥ {TARGET:g} × one" if count == WRITERS[-1] else "",
            best["ours", count] / one >= TARGET if count == WRITERS[-1] else None,
            "ratio: to one writer",
        )
        for count in WRITERS
    ]
