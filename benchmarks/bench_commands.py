"""Row 8: CPU time of commands that only read, each in a process of its own, beside a bare start of Python.

The commands take turns, so that a machine that is busy for a while slows all of them.
"""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.rows import Row, cpu_and_peak
from tests.memory.audit.long_run import LongRun

PROGRAM = [sys.executable, "-c", "from diagevo.cli.main import app; app()"]
BARE = "python -c pass"
REPEAT = 5


def _least(commands: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Of `REPEAT` rounds after one that is not counted: it writes the bytecode, which a user has."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    best = dict.fromkeys(commands, float("inf"))
    for turn in range(REPEAT + 1):
        for name, command in commands.items():
            took, _ = cpu_and_peak(command, environment | {"NO_COLOR": "1"})
            if turn:
                best[name] = min(best[name], took)
    return best


def _played(folder: Path, name: str, rounds: int) -> list[str]:
    """The options that name a new run of so many rounds."""
    (folder / name).mkdir()
    run = LongRun(folder / name, 1700 * rounds, per_round=2000)
    assert run.state.round == rounds
    run.close()
    return ["--db", f"sqlite:///{run.path}", "--run", "long"]


def rows() -> list[Row]:
    limits = {"--version": None, "--help": 0.6, "memory show": 1.0}
    limits |= {"runs list": 0.4, "memory why c1": 0.4, "memory log -n 3": 0.4}
    with tempfile.TemporaryDirectory() as folder:
        five, three = (_played(Path(folder), f"of-{n}", n) for n in (5, 3))
        on = {"--version": [], "--help": [], "memory show": five, "runs list": three[:2]}
        commands = {name: [*PROGRAM, *name.split(), *on.get(name, three)] for name in limits}
        took = _least({BARE: [sys.executable, "-c", "pass"], **commands})
    rounds = {"memory show": ", 5 rounds", "--version": "", "--help": ""}
    return [
        Row(
            f"diagevo {name}{rounds.get(name, ', 3 rounds')}",
            took[name],
            "s CPU",
            took[BARE],
            BARE,
            took[name] / took[BARE],
            "" if limit is None else f"≤ {limit:g} s CPU",
            None if limit is None else took[name] <= limit,
        )
        for name, limit in limits.items()
    ]
