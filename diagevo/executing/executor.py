"""Runs a model's program, and returns its result or why that does not count.

Nothing of it is evaluated here: the program goes to a separate process (`child`), which is started for it and
killed after it, and its output is read as a literal or not at all.
"""

import ast
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from diagevo.errors import MissingDependencyError
from diagevo.executing.child import LITERAL_BYTES
from diagevo.executing.walls import CPU_SECONDS

WALL_SECONDS = 10.0
"""Wall-clock limit of one run. CPU time and memory are limited by the process itself (`child`)."""
MOST_INPUTS = 16
_ANSWER_BYTES = 8 * LITERAL_BYTES * MOST_INPUTS
"""More than the longest answer, whose characters JSON may escape as six."""

Refusal = Literal[
    "banned", "not_executable", "not_deterministic", "not_literal", "timeout", "memory", "too_long"
]
Wall = Literal["network_namespace", "system_call_filter", "unprivileged"]
WALLS: Mapping[Wall, str] = {
    "network_namespace": "no network: a namespace without one",
    "system_call_filter": "only system calls that computing needs",
    "unprivileged": "no rights of root",
}
_TOO_SLOW = f"it took more than {CPU_SECONDS} seconds of CPU time, or {WALL_SECONDS:g} on the clock"
_ENDED: Mapping[int, tuple[Refusal, str]] = {
    signal.SIGXCPU: ("timeout", _TOO_SLOW),
    signal.SIGKILL: ("timeout", _TOO_SLOW),
    signal.SIGSYS: ("banned", "it called the system"),
}
"""By the signal that ended the process."""
_CHILD = """import sys
sys.path.append(sys.argv[1])
from diagevo.executing.child import main
sys.path.pop()
main()
"""


@dataclass(frozen=True, slots=True)
class Execution:
    """The result of a program: an output for each input, or why there is none."""

    outputs: tuple[str, ...] = ()
    """Python literals, each at most 4 kB; empty if the program was refused."""
    refused: Refusal | None = None
    why: str = ""
    """An explanation of at most 200 characters; it may quote the model."""
    walls: frozenset[Wall] | None = None
    """What contained the process besides the limits and the allow-lists; None if the program was not
    started."""


class PythonExecutor:
    """Runs programs, each twice: two hash seeds and two orders of its inputs must give the same values."""

    def __init__(self, workers: int | None = None, seconds: float = WALL_SECONDS) -> None:
        """`workers`: concurrent processes; by default one per core."""
        if os.name != "posix":
            raise MissingDependencyError(
                "programs are run on Linux and macOS alone", hint="use a machine with one of them"
            )
        self.workers = workers or os.cpu_count() or 1
        self.seconds = seconds

    def walls(self) -> frozenset[Wall]:
        """What contains a process here, determined by running one."""
        return self.run("def f(x): return x", ["1"]).walls or frozenset()

    def run(self, program: str, inputs: Sequence[str]) -> Execution:
        """Call the program's `f`, or its last function, with each of the inputs: arguments as written
        in a call. If one is refused, all are."""
        if not 0 < len(inputs) <= MOST_INPUTS:
            raise ValueError(f"1 to {MOST_INPUTS} inputs are run at a time, not {len(inputs)}")
        if any(len(each.encode(errors="replace")) > LITERAL_BYTES for each in inputs):
            return Execution(refused="too_long", why=f"an input is longer than {LITERAL_BYTES} bytes")
        first = _played(program, list(inputs), "0", self.seconds)
        if first.refused is not None:
            return first
        again = _played(program, list(reversed(inputs)), "1", self.seconds)
        if again.refused in ("memory", "timeout"):
            return again  # so close to its limits that one run was lucky
        pairs = zip(first.outputs, reversed(again.outputs), strict=True)
        if again.refused is not None or not all(same_literal(one, other) for one, other in pairs):
            why = "a second run gave another result"
            return Execution(refused="not_deterministic", why=why, walls=first.walls)
        return first

    def run_many(self, programs: Sequence[tuple[str, Sequence[str]]]) -> list[Execution]:
        """`run` for each program with its inputs, in order."""
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(lambda each: self.run(*each), programs))


def read_literal(text: str) -> tuple[object] | None:
    """The value of a text, in a one-element tuple; None if it is not a Python literal of at most 4 kB."""
    if len(text.encode(errors="replace")) > LITERAL_BYTES:
        return None
    try:
        return (ast.literal_eval(text.strip()),)
    except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError):
        return None


def same_literal(one: str, other: str) -> bool:
    """Whether both are literals with the same value."""
    first, second = read_literal(one), read_literal(other)
    return first is not None and second is not None and bool(first == second)


def _played(program: str, inputs: list[str], hash_seed: str, seconds: float) -> Execution:
    # As -I, but for the seed of the hashes: the only variable of the environment.
    flags = ["-s", "-P", "-S", "-B", "-W", "ignore"]
    with tempfile.TemporaryFile() as request, tempfile.TemporaryDirectory() as empty:
        request.write(json.dumps({"program": program, "inputs": inputs}).encode())
        request.seek(0)
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", _CHILD, str(Path(__file__).resolve().parents[2])],
            stdin=request,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=empty,
            env={"PYTHONHASHSEED": hash_seed},
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout as pipe:
            answer, closed = _answer_of(pipe.fileno(), seconds)
            if closed:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    return _read(answer, code, len(inputs))


def _answer_of(pipe: int, seconds: float) -> tuple[bytes, bool]:
    """What is written to a pipe in that time, at most the size of an answer, and whether that was all."""
    deadline = time.monotonic() + seconds
    readable = select.poll()
    readable.register(pipe, select.POLLIN)
    answer = b""
    while len(answer) <= _ANSWER_BYTES and (left := deadline - time.monotonic()) > 0:
        if readable.poll(1000 * left):
            piece = os.read(pipe, 65_536)
            if not piece:
                return answer, True
            answer += piece
    return answer, False


def _read(answer: bytes, code: int, wanted: int) -> Execution:
    """An answer, treated as untrusted text: a compromised process may have written it."""
    if len(answer) > _ANSWER_BYTES:
        return Execution(refused="too_long", why="its process wrote more than an answer")
    said: dict[str, object] = {}
    try:
        for line in answer.splitlines():
            said |= dict(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        pass  # what ended before its last line; the exit code says more
    named = said.get("walls")
    listed = cast("list[object]", named) if isinstance(named, list) else None
    walls: frozenset[Wall] | None = None
    if listed is not None:
        walls = frozenset(wall for wall in WALLS if wall in listed)
    if code != 0:
        kind, why = _ENDED.get(-code, ("not_executable", f"its process ended with code {code}"))
        return Execution(refused=kind, why=why, walls=walls)
    refused, why, outputs = said.get("refused"), said.get("why"), said.get("outputs")
    if refused is not None:
        kind = cast("Refusal", refused) if refused in get_args(Refusal) else "not_executable"
        return Execution(refused=kind, why=why[:200] if isinstance(why, str) else "", walls=walls)
    if isinstance(outputs, list):
        texts = [each for each in cast("list[object]", outputs) if isinstance(each, str)]
        if len(texts) == wanted and all(read_literal(each) is not None for each in texts):
            return Execution(outputs=tuple(texts), walls=walls)
    return Execution(refused="not_executable", why="its process gave no result", walls=walls)
