"""An ingest that is killed in its transactions and between them goes on where it stood, and ends where an
unbroken one does."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from tests.cli.program import clean_environment
from tests.ingest.conftest import DATA

STEPS = 6
INGEST = ["ingest", "verl", "rollouts", "--run", "v", "--steps-per-round", "2"]
KILLS = ("before", "after")
"""Its second commit of events. The first one stays, and has to be gone on from."""

PROGRAM = """
import os, signal
import diagevo.ingest.session
from sqlalchemy.engine.default import DefaultDialect
from diagevo.cli.main import app
from diagevo.memory.log.log import Log

diagevo.ingest.session.TOGETHER = 1  # each step in a transaction of its own
append, do_commit = Log.append, DefaultDialect.do_commit
appended, commits = False, 0

def appending(*given, **named):
    global appended
    appended = True
    return append(*given, **named)

def committing(*given):
    global appended, commits
    commits, appended = commits + appended, False
    for when in ("before", "after"):
        if (when, 2) == (os.environ.get("KILL"), commits):
            os.kill(os.getpid(), signal.SIGKILL)
        if when == "before":
            do_commit(*given)

Log.append, DefaultDialect.do_commit = appending, committing
app()
"""


def _events(folder: Path) -> list[tuple[str, int, str]]:
    database = Database(f"sqlite:///{folder / 'diagevo.db'}")
    found = [(e.type, e.round, e.payload) for e in Log(database).read("v")]
    database.close()
    return found


def _ended(folder: Path, **kill: str) -> int:
    command = [sys.executable, "-c", PROGRAM, *INGEST, "--db", f"sqlite:///{folder / 'diagevo.db'}"]
    return subprocess.run(command, env=clean_environment(**kill), cwd=folder, capture_output=True).returncode


@pytest.mark.slow
def test_an_ingest_that_is_killed_again_and_again_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    written = sorted((DATA / "verl" / "rollouts").glob("*.jsonl"))
    for folder in (whole, broken):
        (folder / "rollouts").mkdir(parents=True)
        for step in range(1, STEPS + 1):
            rows = [json.loads(line) | {"step": step} for line in written[step % len(written)].open()]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / "rollouts" / f"{step}.jsonl").write_text(text)
    assert _ended(whole) == 0
    expected = _events(whole)
    kept = [0]
    while (code := _ended(broken, KILL=KILLS[len(kept) % 2])) != 0:
        assert code == -signal.SIGKILL
        kept.append(len(_events(broken)))
        assert kept[-1] > kept[-2], "what was acknowledged stays"
    assert len(kept) > 2, "it was killed between its steps"
    assert _events(broken) == expected
