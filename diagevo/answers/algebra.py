"""Worker processes for the comparisons that need a computer-algebra system, with a hard kill."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import IO, NamedTuple, cast

from diagevo.errors import MissingDependencyError, extra

START_SECONDS = 120.0
"""Longest wait for a worker's imports, in wall time; a machine can be very busy."""

PATIENCE = 20.0
"""A worker ends itself when its CPU time is spent; after so many times that, on the clock, it is killed."""


class Ended(Enum):
    AGREE = "agree"
    DIFFER = "differ"
    TIMEOUT = "timeout"
    CRASH = "crash"


class AlgebraOutcome(NamedTuple):
    """What came of a comparison, and the CPU seconds that it took or, where a process died, may have."""

    ended: Ended
    seconds: float


class AlgebraWorker:
    """One worker process, started by its first comparison and again after each death. Not thread-safe."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: CPU time that one comparison may take, both directions and parsing included."""
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def compare(self, a: str, b: str) -> AlgebraOutcome:
        """Ask; a process that dies of something other than its time limit is replaced and asked once more."""
        for _ in range(2):
            compared = self._ask(a, b)
            if compared.ended is not Ended.CRASH:
                return compared
        return AlgebraOutcome(Ended.CRASH, 2 * self.seconds)

    def close(self) -> None:
        """End the process: it leaves at the end of its input, and is killed if it does not."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(BrokenPipeError):  # it died before it had read everything
            cast(IO[bytes], process.stdin).close()
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        cast(IO[bytes], process.stdout).close()

    def _start(self) -> subprocess.Popen[bytes]:
        package = Path(__file__).resolve().parents[2]
        path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
        # A fixed hash seed: sympy's order of terms, and with it a verdict, must not change from run to run.
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "diagevo.answers.algebra_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._buffer = b""
        self._process = process
        if self._line(START_SECONDS) != b"ready":
            process.kill()
            process.wait()
            self._process = None
            with extra("eval", "comparing answers"):
                import math_verify  # noqa: F401  # pyright: ignore[reportUnusedImport]  (only to say that it is not there)
            raise MissingDependencyError(
                f"the answer checker's worker process did not start (exit status {process.returncode})",
                hint=f"try: {sys.executable} -m diagevo.answers.algebra_worker </dev/null",
            )
        return process

    def _ask(self, a: str, b: str) -> AlgebraOutcome:
        process = self._process or self._start()
        try:
            stdin = cast(IO[bytes], process.stdin)
            stdin.write(json.dumps([a, b, self.seconds]).encode() + b"\n")
            stdin.flush()
            reply = self._line(self.seconds * PATIENCE)
        except BrokenPipeError:
            reply = b""
        if reply:
            verdict, spent = reply.split()
            return AlgebraOutcome(Ended.AGREE if verdict == b"1" else Ended.DIFFER, float(spent))
        still_busy = reply is None
        process.kill()
        status = process.wait()
        self.close()
        timed_out = still_busy or status == -signal.SIGPROF
        return AlgebraOutcome(Ended.TIMEOUT if timed_out else Ended.CRASH, self.seconds)

    def _line(self, seconds: float) -> bytes | None:
        """The next line; b"" at the end of the stream, None where `seconds` of wall time pass without one."""
        output = cast(IO[bytes], cast("subprocess.Popen[bytes]", self._process).stdout).fileno()
        ready = select.poll()
        ready.register(output, select.POLLIN)
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return None
            chunk = os.read(output, 4096)
            if not chunk:
                return b""
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class AlgebraPool:
    """A fixed number of workers shared by any number of threads."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._idle = [AlgebraWorker(seconds) for _ in range(workers)]
        self._all = tuple(self._idle)
        self._free = threading.Condition()

    def compare(self, a: str, b: str) -> AlgebraOutcome:
        """Compare on the next free worker. Raises MissingDependencyError where none can be started."""
        with self._free:
            while not self._idle:
                self._free.wait()
            worker = self._idle.pop()
        try:
            return worker.compare(a, b)
        finally:
            with self._free:
                self._idle.append(worker)
                self._free.notify()

    def close(self) -> None:
        """End every worker; a later comparison starts them again."""
        for worker in self._all:
            worker.close()
