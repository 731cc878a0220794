"""An ingest that is killed at any moment goes on where it stood, and ends where an unbroken one does."""

import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from tests.cli.program import STARTED, clean_environment
from tests.ingest.conftest import DATA

STEPS = 60
"""Enough that a kill falls between two of them."""
INGEST = ["ingest", "verl", "rollouts", "--run", "v", "--steps-per-round", "2"]


def _events(folder: Path) -> list[tuple[str, int, str]]:
    database = Database(f"sqlite:///{folder / 'diagevo.db'}")
    found = [(e.type, e.round, e.payload) for e in Log(database).read("v")]
    database.close()
    return found


def _started(folder: Path) -> "subprocess.Popen[bytes]":
    command = [*STARTED, *INGEST, "--db", f"sqlite:///{folder / 'diagevo.db'}"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=clean_environment(), cwd=folder, stdout=quiet, stderr=quiet)


@pytest.mark.slow
def test_an_ingest_that_is_killed_again_and_again_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    written = sorted((DATA / "verl" / "rollouts").glob("*.jsonl"))
    for folder in (whole, broken):
        (folder / "rollouts").mkdir(parents=True)
        for step in range(1, STEPS + 1):
            shutil.copy(written[step % len(written)], folder / "rollouts" / f"{step}.jsonl")
    assert _started(whole).wait(120) == 0
    expected = _events(whole)
    kept = [0]
    while (code := _killed_once_it_went_on(broken, kept[-1])) is None:
        kept.append(len(_events(broken)))
        assert kept[-1] > kept[-2], "what was acknowledged stays"
    assert code == 0
    assert len(kept) > 2, "it was killed between its steps"
    assert _events(broken) == expected


def _killed_once_it_went_on(folder: Path, events: int) -> int | None:
    """Let it ingest until it holds more events, then kill it; how it ended where that came first."""
    process = _started(folder)
    while (code := process.poll()) is None:
        if _count(folder / "diagevo.db") > events:
            process.kill()
            process.wait()
            return None
        time.sleep(0.002)
    return code


def _count(file: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT count(*) FROM event").fetchone()[0]
    except sqlite3.OperationalError:  # not there yet
        return 0
