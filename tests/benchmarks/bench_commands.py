"""Row 8: CPU time of `diagevo --help` and of `memory show` on five rounds, each in a process of its own."""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.long_run import LongRun
from tests.benchmarks.rows import Row, at_most

COMMAND = [sys.executable, "-c", "from diagevo.cli.main import app; app()"]


def _cpu_of(arguments: list[str], repeat: int = 3) -> float:
    """Least CPU seconds, user and system, of a child with these arguments."""
    environment = {**os.environ, "NO_COLOR": "1"}
    best = float("inf")
    for _ in range(repeat):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*COMMAND, *arguments], check=True, stdout=subprocess.DEVNULL, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        run = LongRun(Path(folder), 10_000, per_round=2000)
        assert run.state.round >= 5
        run.close()
        show = _cpu_of(["memory", "show", "--db", f"sqlite:///{run.path}", "--run", "long"])
    return [
        at_most("diagevo --help", _cpu_of(["--help"]), "s CPU", 0.6),
        at_most("memory show, 5 rounds", show, "s CPU", 1.0),
    ]
