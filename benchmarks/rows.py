"""What a benchmark measures, and how: CPU time, measured side by side with its reference."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PEAK = "BENCHMARK_PEAK"
PROGRAM = (
    sys.executable,
    "-c",
    f"""
import atexit, os, pathlib
from diagevo.cli.main import app
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: pathlib.Path(os.environ["{PEAK}"]).write_text(status.read_text()))
app()
""",
)
"""The program; it leaves its status in the file that PEAK names: getrusage begins at the parent's peak."""


def peak_of(status: Path) -> int:
    """The most memory that a process held, in bytes; 0 where it was killed."""
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    `measured` and `reference` are in `unit`. `ratio` is how the target is put: a share of the reference's
    speed, how many times faster, or None where the target is a figure by itself. `met` is None where
    nothing is promised, `measured` where the note says why there is no figure.
    """

    name: str
    measured: float | None
    unit: str
    reference: float | None
    reference_name: str
    ratio: float | None
    target: str
    met: bool | None
    note: str = ""


def cpu_seconds(work: Callable[[], object], *, repeat: int = 1) -> float:
    """CPU seconds of this process for one call: the least of `repeat`; garbage is collected before each."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def cpu_and_peak(command: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[float, int]:
    """CPU seconds, user and system, of a program that succeeds, and its peak memory in bytes."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def side_by_side(sides: Mapping[str, Callable[[], Callable[[], object]]], *, repeat: int) -> dict[str, float]:
    """Least CPU seconds of each side over `repeat` rounds.

    In a round every side runs once, one after the other, so that a machine that is busy for a while slows all
    of them. A side prepares unmeasured and gives what is measured.
    """
    best = dict.fromkeys(sides, float("inf"))
    for _ in range(repeat):
        for name, prepare in sides.items():
            best[name] = min(best[name], cpu_seconds(prepare()))
    return best


def faster(
    name: str,
    measured: float,
    reference: float,
    reference_name: str,
    target: float,
    unit: str,
    note: str = "",
) -> Row:
    """A row whose promise is a speed of at least `target` times the reference's. Both in the same unit of
    time."""
    ratio = reference / measured
    return Row(
        name, measured, unit, reference, reference_name, ratio, f"≥ {target:g} ×", ratio >= target, note
    )


def at_most(name: str, measured: float, unit: str, limit: float, note: str = "") -> Row:
    """A row whose promise is a figure of at most `limit`."""
    return Row(name, measured, unit, None, "", None, f"≤ {limit:g} {unit}", measured <= limit, note)
