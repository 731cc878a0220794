"""Comparisons that need a computer-algebra system: math-verify in worker processes, with a hard kill.

math-verify cannot be trusted to terminate. So before each comparison the worker, which is this file
run as a program, arms a timer on its own CPU time, whose signal makes the kernel end the process, whatever it
is doing; a busy machine does not shorten the limit. The parent notices its exit.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from diagevo.errors import MissingDependencyError, extra

START_SECONDS = 120.0
"""Longest wait for a worker's imports, in wall time; a machine can be very busy."""

PATIENCE = 20.0
"""A worker ends itself when its CPU time is spent; after this multiple of it in wall time, it is killed."""


class Ended(Enum):
    AGREE = "agree"
    DIFFER = "differ"
    TIMEOUT = "timeout"
    CRASH = "crash"


class AlgebraOutcome(NamedTuple):
    """The result of a comparison, and its CPU seconds (an upper bound if the process died)."""

    ended: Ended
    seconds: float


class AlgebraWorker:
    """One worker process, started by its first comparison and again after each death. Not thread-safe."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: CPU time of one comparison, including both directions and parsing."""
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def compare(self, a: str, b: str) -> AlgebraOutcome:
        """Ask; a process that dies for another reason than its time limit is replaced and asked once more."""
        for _ in range(2):
            compared = self._ask(a, b)
            if compared.ended is not Ended.CRASH:
                return compared
        return AlgebraOutcome(Ended.CRASH, 2 * self.seconds)

    def close(self) -> None:
        """End the process: it exits at the end of its input, or is killed."""
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
            [sys.executable, "-P", "-m", "diagevo.answers.algebra"],
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
                hint=f"try: {sys.executable} -m diagevo.answers.algebra </dev/null",
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
        """Compare on the next free worker. Raises MissingDependencyError if none can be started."""
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


MEMORY_BYTES = 4 << 30


_NAMES = re.compile(r"\\(?:mathbb\s*\{?\s*[A-Z]|(?:begin|end)\s*\{[a-z]*\}|[A-Za-z]+)|([A-Za-z])")
_KNOWN = {"e", "i", "d"}
_DROPPED = re.compile(r"\\(?:(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|exp)\s*_")
"""A subscript that math-verify ignores."""


@lru_cache(maxsize=4096)
def parsed(text: str) -> tuple[Any, ...]:
    """What math-verify parses from a text: an expression and its source text, or nothing.

    A formula counts only if all of it was parsed: no number is taken out of a formula that is not understood,
    and every name in it is in the expression. Prose is searched for its answer.
    """
    from math_verify import LatexExtractionConfig, parse

    if not (text.startswith("$") and text.endswith("$")):
        return tuple(parse(text, parsing_timeout=None))  # pyright: ignore[reportArgumentType]  (None is off, as its docs say)
    if _DROPPED.search(text):
        return ()
    read = tuple(parse(text, [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None))  # pyright: ignore[reportArgumentType]
    shown = set(re.findall("[a-z]", str(read[0]).lower())) if read else set[str]()
    return read if _small(set(_NAMES.findall(text))) - {""} <= shown | _KNOWN else ()


def _value(side: tuple[Any, ...]) -> tuple[Any, ...]:
    """`1/2 + 1/3 = 5/6` is the value 5/6: a left side without unknowns says nothing more."""
    from math_verify.grader import is_equation, take_first_relation, take_last_relation

    if side and is_equation(side[0]) and not take_first_relation(side[0]).lhs.free_symbols:
        return (take_last_relation(side[0]).rhs,)
    return side


def _small(names: set[str]) -> set[str]:
    return {name.lower() for name in names}


def equivalent(a: str, b: str) -> bool:
    """math-verify's verdict in either direction.

    One direction is left out: an equation that is no assignment (`a + 3z = 0`) is not its right side (`0`).
    """
    from math_verify.grader import is_assignment_relation, is_equation

    sides = [_value(parsed(a)), _value(parsed(b))]
    names, others = set(_NAMES.findall(a)), set(_NAMES.findall(b))
    if not all(sides) or (names != others and _small(names) == _small(others)):
        return False  # math-verify takes X for x
    equations = [is_equation(side[0]) for side in sides]
    if equations[0] != equations[1]:
        equation, value = sides if equations[0] else sides[::-1]
        if not is_assignment_relation(equation[0]):
            return _verify(equation, value)
    return _verify(sides[0], sides[1]) or _verify(sides[1], sides[0])


def _verify(gold: tuple[Any, ...], answer: tuple[Any, ...]) -> bool:
    from math_verify import verify

    return bool(verify(list(gold), list(answer), timeout_seconds=None))


def serve() -> None:
    """Answer each comparison, a JSON line, with "1" or "0" and the CPU seconds that it took."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a library's output must not pass for a reply
    equivalent(
        "$x + \\frac{y}{2} = 3$", "$2x + y = 6$"
    )  # grammar and solver are loaded on first use, on nobody's time
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        a, b, seconds = json.loads(line)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            same = equivalent(a, b)
        except (Exception, MemoryError, RecursionError):
            same = False  # anything that cannot be read or compared is not equal
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(int(same), time.process_time() - began, file=replies, flush=True)


if __name__ == "__main__":
    serve()
