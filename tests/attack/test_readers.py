"""Readers beside writers: each look is one moment, without a gap and without half a transaction."""

import subprocess
import sys

import pytest

from diagevo.memory.audit.verify import verify
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from tests.contracts.databases import Store

WRITERS = 3
BATCH = 4
BATCHES = 40

WRITER = f"""
import sys, pathlib, time, diagevo
from diagevo.memory.events import StageStarted
from diagevo.memory.events.records import pending
name = sys.argv[3]
with diagevo.open(sys.argv[1], run=name, root=pathlib.Path(sys.argv[2])) as memory:
    memory.claim()
    print("ready", flush=True)
    sys.stdin.readline()
    for batch in range({BATCHES}):
        while batch == {BATCHES // 2} and not pathlib.Path(sys.argv[2], "seen").exists():
            time.sleep(0.001)
        with memory.database.write():
            for number in range(batch * {BATCH}, (batch + 1) * {BATCH}):
                event = pending(name, 1, StageStarted(stage=name, attempt=number + 1))
                memory.log.append(name, number, [event])
"""


def _look(log: Log) -> dict[str, int]:
    """Events by run. All reads are of one moment: positions and sequences have no gap."""
    sequences: dict[str, int] = {}
    with log.database.view():
        position = 0
        for record in log.read():
            assert record.position == position + 1
            position = record.position
            assert record.sequence == sequences.get(record.run_id, 0) + 1
            sequences[record.run_id] = record.sequence
        assert log.last_position() == position
        assert {run: log.head(run).sequence for run in sequences} == sequences
    return sequences


@pytest.mark.slow
def test_readers_beside_three_writers_see_no_gap_and_no_half_transaction(store: Store) -> None:
    names = [f"w{i}" for i in range(WRITERS)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, store.url, str(store.root), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    for process in writers:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    database = Database(store.url)
    log = Log(database)
    looks = [_look(log)]
    for process in writers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    while any(process.poll() is None for process in writers):
        looks.append(_look(log))
        if any(looks[-1].values()):
            (store.root / "seen").touch()  # they wait for it half way
    looks.append(_look(log))
    database.close()
    for process in writers:
        process.communicate()
        assert process.returncode == 0
    assert looks[-1] == dict.fromkeys(names, BATCH * BATCHES)
    assert all(count % BATCH == 0 for look in looks for count in look.values())
    for name in names:
        counts = [look.get(name, 0) for look in looks]
        assert counts == sorted(counts)
    assert len({sum(look.values()) for look in looks}) > 2, "some looks fell between the writes"


def test_a_run_is_verified_while_it_is_written(store: Store) -> None:
    """Every look finds a log as it was written, with the head of each commit that it sees."""
    code = f"""
import itertools, pathlib, diagevo
from tests.attack.kills import a_round
with diagevo.open({store.url!r}, run="a", root=pathlib.Path({str(store.root)!r})) as memory:
    for number in range(8):
        for _ in a_round(memory):
            if number == 0:
                print("begun", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    database = Database(store.url)
    log, rounds = Log(database), []
    while process.poll() is None:
        looked = verify(log, "a", store.root / "a")
        assert looked.faults == []
        rounds.append(looked.rounds)
    report = verify(log, "a", store.root / "a")
    database.close()
    process.communicate()
    assert (process.returncode, rounds) == (0, sorted(rounds))
    assert (report.rounds, report.faults, report.notes) == (8, [], [])
