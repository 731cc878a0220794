"""The processes that compare two terms: what they say, how they end, and what takes their place."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagevo.answers import algebra
from diagevo.answers.algebra import AlgebraWorker, Ended
from diagevo.answers.equivalence import AnswerChecker
from diagevo.errors import MissingDependencyError
from tests.sampling.processes import state


@pytest.mark.slow
def test_a_worker_that_is_killed_from_outside_is_replaced():
    worker = AlgebraWorker(5.0)
    ended, seconds = worker.compare("$x+y=3$", "$2x+2y=6$")
    assert (ended, 0 < seconds < 5) == (Ended.AGREE, True)
    process = worker._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert worker.compare("$x+y=3$", "$x+y=4$").ended is Ended.DIFFER
    worker.close()


def starting(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A worker is this script."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(algebra.sys, "executable", str(python))


def test_a_worker_that_dies_twice_over_a_pair_is_a_crash(tmp_path, monkeypatch):
    starting(tmp_path, monkeypatch, "echo ready\nread line\nexit 3")
    with AnswerChecker(workers=1) as fresh:
        assert not fresh.agree("\\mathbb{Q}", "\\mathbb{R}")
        assert fresh.undecided(fresh.group([["\\mathbb{Q}", "\\mathbb{R}"]])) == 1
    worker = AlgebraWorker(5.0)
    assert worker.compare("$x$", "$y$").ended is Ended.CRASH
    worker.close()


def test_a_worker_that_never_answers_is_killed_by_the_clock(tmp_path, monkeypatch):
    starting(tmp_path, monkeypatch, "echo ready\nexec sleep 600")
    monkeypatch.setattr(algebra, "PATIENCE", 2.0)
    worker = AlgebraWorker(0.1)
    assert worker.compare("$1$", "$2$").ended is Ended.TIMEOUT
    worker.close()


def test_a_worker_that_cannot_start_says_so(tmp_path, monkeypatch):
    starting(tmp_path, monkeypatch, "exit 1")
    with AnswerChecker(workers=1) as fresh, pytest.raises(MissingDependencyError, match="did not start"):
        fresh.agree("\\mathbb{Q}", "\\mathbb{R}")


@pytest.mark.slow
def test_close_ends_the_processes_and_a_later_pair_starts_one_again():
    worker = AlgebraWorker(5.0)
    worker.compare("$1$", "$2$")
    process = worker._process
    assert process is not None
    worker.close()
    assert process.returncode is not None
    assert worker.compare("$x+y=3$", "$y+x=3$").ended is Ended.AGREE
    worker.close()


@pytest.mark.slow
def test_it_works_in_a_thread_of_a_process_with_torch():
    pytest.importorskip("torch")
    code = """
import sys, threading, torch
from diagevo.answers.equivalence import agree
out = []
thread = threading.Thread(target=lambda: out.append((agree("x+y=3", "2x+2y=6"), agree("1<x<2", "(1,2)"))))
thread.start(); thread.join()
print(out, "sympy" in sys.modules and "math_verify" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.stdout == "[(True, True)] False\n", result.stderr
    assert result.stderr == ""


def test_the_worker_ends_when_its_parent_is_gone():
    code = """
import os
from diagevo.answers import equivalence
equivalence.agree("x+y=3", "2x+2y=6")
print(equivalence._shared._pool._all[0]._process.pid, flush=True)
os._exit(0)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    pid = int(result.stdout)
    while state(pid) != "Z":
        time.sleep(0.01)
