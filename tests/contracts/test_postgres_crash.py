"""What a writer was told of is there after a crash of the PostgreSQL server, and no position is missing."""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from diagevo.errors import StaleWriterError, StoreError
from diagevo.memory.events import StageStarted
from diagevo.memory.events.records import GENESIS, pending
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from tests.contracts.databases import PostgresServer, PostgresStores

CRASHES = 5
APPENDS = 20
"""Of a writer between two crashes, at least: the server writes what waits five times a second by itself."""


@pytest.fixture
def url() -> Iterator[str]:
    """A database of a server of its own, which may fall."""
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:  # sockets want a short path
        server = PostgresServer(Path(folder))
        yield PostgresStores(server).new(Path(folder)).url
        server.stop()


class Writer(threading.Thread):
    """Appends one event a transaction to a run of its own; `told`: position by sequence of what returned."""

    def __init__(self, url: str, run: str, over: threading.Event) -> None:
        super().__init__()
        self._url, self.written, self._over = url, run, over
        self.told: dict[int, int] = {}
        self.refused = 0
        self.behind: StaleWriterError | None = None

    def run(self) -> None:
        database = Database(self._url)
        log = Log(database)
        sequence = 0
        while not self._over.is_set():
            event = pending(self.written, 1, StageStarted(stage="solver", attempt=sequence + 1))
            try:
                appended = log.append(self.written, sequence, [event])
            except StaleWriterError as error:  # the log is behind what it told
                self.behind = error
                return
            except StoreError:
                self.refused += 1  # whether it is there is not known: asked again, it is not there twice
                continue
            sequence += 1
            self.told[sequence] = appended.positions[0]
        database.close()


def _wait_for_more(writers: list[Writer]) -> None:
    """Until each writer was told of APPENDS further events."""
    wanted = [len(writer.told) + APPENDS for writer in writers]
    while any(len(writer.told) < count for writer, count in zip(writers, wanted, strict=True)):
        assert [writer.behind for writer in writers] == [None] * len(writers)
        time.sleep(0.001)


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_when_the_server_falls_again_and_again(url: str) -> None:
    over = threading.Event()
    writers = [Writer(url, f"w{number}", over) for number in range(3)]
    for writer in writers:
        writer.start()
    try:
        _wait_for_more(writers)
        for _ in range(CRASHES):
            with psycopg.connect(url) as victim:
                os.kill(
                    victim.info.backend_pid, signal.SIGKILL
                )  # the server drops its memory and starts again
            _wait_for_more(writers)
    finally:
        over.set()
    for writer in writers:
        writer.join()
    database = Database(url)
    log = Log(database)
    there = {(record.run_id, record.sequence): record.position for record in log.read()}
    assert sorted(there.values()) == list(range(1, log.last_position() + 1))
    for writer in writers:
        assert writer.refused
        assert len(writer.told) >= CRASHES * APPENDS
        for sequence, position in writer.told.items():
            assert there[writer.written, sequence] == position
        chain = list(log.read(writer.written))
        assert [record.previous_hash for record in chain] == [GENESIS, *(r.hash for r in chain)][:-1]
        assert all(record.hash == record.computed_hash for record in chain)
    database.close()
