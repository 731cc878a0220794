"""A writer that is stopped in the middle, and goes on, with its lock and after somebody else took it; and one
that is killed: what it told is there. Thousands of kills: python -m tests.attack.kills."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from diagevo.errors import HeldError
from diagevo.memory.audit.verify import verify
from tests.contracts.databases import Store
from tests.memory.play import candidate

HOLDER = """
import sys, pathlib, diagevo
from diagevo.errors import DiagEvoError
from tests.memory.play import candidate
memory = diagevo.open(sys.argv[1], run="a", root=pathlib.Path(sys.argv[2]))
memory.open_round(1)
print("held", flush=True)
while sys.stdin.readline().strip() == "score":
    try:
        memory.score([candidate("r1.q0"), candidate("r1.q1")])
        print("scored", flush=True)
    except DiagEvoError as error:
        print(type(error).__name__, error.message, flush=True)
memory.close()
"""


@pytest.fixture
def holder(store: Store) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, store.url, str(store.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert _said(process) == "held"
    yield process
    process.kill()
    process.communicate()


def _said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _asked(process: subprocess.Popen[str], what: str = "score") -> str:
    assert process.stdin is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    return _said(process)


def _break_the_lock(store: Store) -> None:
    """As somebody can who has the folder, or the database's password."""
    if store.dialect == "sqlite":
        shutil.rmtree(store.root / "a")
        return
    with store.log() as log, log.database.write() as connection:
        ended = text(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        )
        assert connection.execute(ended).scalars().all() == [True]


@pytest.mark.parametrize("beside", [True, False], ids=["beside it", "after it"])
def test_a_stopped_writer_that_lost_its_lock_writes_nothing_and_frees_nothing(
    store: Store, holder: subprocess.Popen[str], beside: bool
) -> None:
    os.kill(holder.pid, signal.SIGSTOP)
    with store.open() as heir:
        with pytest.raises(HeldError, match=f"run a is being written by diagevo {holder.pid} on "):
            heir.score([candidate("r1.q0")])
        _break_the_lock(store)
        heir.score([candidate("r1.q0")])
        if beside:
            os.kill(holder.pid, signal.SIGCONT)
            refused = _asked(holder)
            if store.dialect == "sqlite":  # its own file is gone, and locked still
                assert refused == "StaleWriterError run a is at sequence 3, this writer expected 2"
            else:
                assert refused.startswith(f"HeldError run a is being written by diagevo {os.getpid()} on ")
            assert _asked(holder, "end") == ""
            assert holder.wait(60) == 0
        with store.open() as third, pytest.raises(HeldError):
            third.claim()
        heir.commit()
    if not beside:
        os.kill(holder.pid, signal.SIGCONT)
        assert _asked(holder) == "StaleWriterError run a is at sequence 4, this writer expected 2"
    with store.log() as log:
        report = verify(log, "a", store.root / "a")
        assert (report.faults, report.events, report.rounds) == ([], 4, 1)


def test_a_stopped_writer_keeps_its_run_and_goes_on(store: Store, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGSTOP)
    with store.open() as other, pytest.raises(HeldError, match="being written by"):
        other.claim()
    os.kill(holder.pid, signal.SIGCONT)
    assert _asked(holder) == "scored"


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_over_30_kills_and_a_head_covers_each_round(
    store: Store,
) -> None:
    """Three of them fall between a commit and its chain head, which a later head makes up for."""
    command = [sys.executable, "-m", "tests.attack.kills", "--kills", "30", "--seed", "7", "--db", store.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["kills"], found["lost"], found["uncovered"], found["faults"]) == (30, 0, 0, [])
    assert found["heads_missing"] >= 3
    assert found["acknowledged"] > 180
    assert found["events"] >= found["acknowledged"] > found["rounds"] > 12
