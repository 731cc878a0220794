"""A holder of the lease that is stopped in the middle, and goes on after somebody else took its run."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from diagevo.errors import StoreError
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


def test_a_stopped_holder_is_fenced_once_its_run_was_taken_over_and_frees_nothing(
    store: Store, holder: subprocess.Popen[str]
) -> None:
    os.kill(holder.pid, signal.SIGSTOP)
    with store.open() as heir:
        with pytest.raises(StoreError, match=f"process {holder.pid} on this machine"):
            heir.score([candidate("r1.q0")])
        heir.claim(takeover=True)
        heir.score([candidate("r1.q0")])
        os.kill(holder.pid, signal.SIGCONT)
        refused = _asked(holder)
        assert refused.startswith("StaleWriterError the lease on run a was taken over by ")
        heir.commit()
        assert _asked(holder, "end") == ""
        assert holder.wait(60) == 0
        heir.open_round(2)
    with store.log() as log:
        report = verify(log, "a", store.root / "a")
        assert (report.faults, report.events, report.rounds) == ([], 5, 1)


def test_a_stopped_holder_goes_on_where_nobody_took_its_run(
    store: Store, holder: subprocess.Popen[str]
) -> None:
    os.kill(holder.pid, signal.SIGSTOP)
    with store.open() as other, pytest.raises(StoreError, match="being written by"):
        other.claim()
    os.kill(holder.pid, signal.SIGCONT)
    assert _asked(holder) == "scored"
