"""A disk that is full while a library writer appends."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagevo.memory.audit.verify import verify
from diagevo.memory.log import heads
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from tests.run.disk import ShortFiles, SmallDisk, small_disk

WRITER = """
import sys, pathlib, diagevo
from diagevo.errors import StoreError
from tests.attack.kills import a_round
home = pathlib.Path(sys.argv[1])
try:
    with diagevo.open(f"sqlite:///{home}/log.db", run="a", root=home) as memory:
        while sys.stdin.readline():
            for _ in range(int(sys.argv[2])):
                for _ in a_round(memory):
                    head = memory.log.head("a")
                    print(head.sequence, head.hash, flush=True)
            print("played", flush=True)
except StoreError as error:
    print("refused", error.message, flush=True)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk | ShortFiles]:
    made = small_disk(tmp_path)
    yield made
    made.close()


def _writer(disk: SmallDisk | ShortFiles, rounds: int) -> subprocess.Popen[str]:
    command = [*disk.prefix, sys.executable, "-c", WRITER, str(disk.home), str(rounds)]
    found_from_there = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=found_from_there
    )


def _told(process: subprocess.Popen[str], acknowledged: set[str]) -> str:
    """Let it play; how it ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    for line in process.stdout:
        if not line[0].isdigit():
            return line.strip()
        acknowledged.add(line.strip())
    return ""


@pytest.mark.slow
def test_a_full_disk_refuses_an_append_and_loses_nothing_that_was_acknowledged(
    disk: SmallDisk | ShortFiles, tmp_path: Path
) -> None:
    acknowledged: set[str] = set()
    writer = _writer(disk, 1)
    assert _told(writer, acknowledged) == "played"
    disk.fill(writer, 0)
    while (end := _told(writer, acknowledged)) == "played":
        assert len(acknowledged) < 5000
    assert end.startswith("refused ")
    assert "cannot be written" in end
    writer.communicate()
    disk.clear()

    writer = _writer(disk, 1)
    assert _told(writer, acknowledged) == "played"
    writer.communicate()
    home = disk.copy(tmp_path / "copy")
    database = Database(str(home / "log.db"))
    log = Log(database)
    assert acknowledged <= {f"{record.sequence} {record.hash}" for record in log.read("a")}
    report = verify(log, "a", home / "a")
    commits = {record.sequence for record in log.read("a", types=["RoundCommitted"])}
    database.close()
    kept = [head.sequence for head in heads.read(home / "a" / heads.NAME).heads]
    assert (report.faults, report.heads) == ([], len(kept))
    assert commits <= set(kept)
    assert len(commits) == report.rounds
