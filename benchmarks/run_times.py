"""What a round of the embedded profile takes: its stages beside the paper's, in one process and in two;
and the time that a kill costs in each stage.

`python -m benchmarks.run_times [one] [two] [kills]` plays real programs (`diagevo train`), a minute and
more for each, so that it is not part of `make bench`.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from diagevo.progress import PAPER_SHARES, STAGES

KILLED_AT = 0.6
"""Share of its time that a stage has had when it is killed."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of the program, and the seconds and CPU seconds (children included) that it had had by then."""

    event: str
    stage: str
    seconds: float
    cpu: float


class Played:
    """One process of `diagevo train`, from its start to its end."""

    def __init__(self, marks: Sequence[Mark], end: Mark) -> None:
        self.marks = marks
        self.end = end

    def at(self, event: str, stage: str) -> Mark:
        return next(mark for mark in self.marks if (mark.event, mark.stage) == (event, stage))

    def took(self, stage: str) -> tuple[float, float]:
        """Seconds and CPU seconds of a stage that was played to its end."""
        start, end = self.at("stage_started", stage), self.at("stage_finished", stage)
        return end.seconds - start.seconds, end.cpu - start.cpu


def play(home: Path, *arguments: str, kill: str = "", after: float = 0.0) -> Played:
    """Play round 1 of run `a`; killed `after` seconds of the stage `kill`, if one is named."""
    program = [sys.executable, "-c", "from diagevo.cli.main import app; app()", "train", "--run", "a"]
    environment = {**os.environ, "DIAGEVO_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    began = time.monotonic()
    marks: list[Mark] = []
    with subprocess.Popen(
        [*program, "--rounds", "1", "--display", "json", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for text in process.stdout:
            line = json.loads(text)
            event, stage = line.get("event", ""), line.get("stage", "")
            marks.append(Mark(event, stage, time.monotonic() - began, _cpu(process.pid)))
            if (event, stage) == ("stage_started", kill):
                threading.Timer(after, process.kill).start()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0  # reaped above
    return Played(marks, Mark("end", "", time.monotonic() - began, used.ru_utime + used.ru_stime))


def _cpu(pid: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def shares(title: str, run: Played) -> Table:
    table = Table("stage", "seconds", "CPU seconds", "share", "paper", title=title)
    took = {stage: run.took(stage) for stage in STAGES}
    whole = sum(seconds for seconds, _ in took.values())
    for stage, (seconds, cpu) in took.items():
        share, paper = f"{seconds / whole:.1%}", f"{PAPER_SHARES[stage]}%"
        table.add_row(stage, f"{seconds:.1f}", f"{cpu:.1f}", share, paper)
    table.add_row("round", f"{whole:.1f}", f"{sum(cpu for _, cpu in took.values()):.1f}", "", "")
    table.add_row("program", f"{run.end.seconds:.1f}", f"{run.end.cpu:.1f}", "", "")
    return table


def kills(folder: Path, unbroken: Played) -> Table:
    """Kill one run in every stage. Lost: what is done again, and starting the program once more."""
    title = f"lost by a kill at {KILLED_AT:.0%} of a stage's time"
    table = Table("stage", "s unbroken", "lost s", "of it starting", "lost CPU s", title=title)
    arguments: tuple[str, ...] = ()
    broken: list[tuple[str, Played]] = []
    for stage in STAGES:
        seconds, _ = unbroken.took(stage)
        broken.append((stage, play(folder, *arguments, kill=stage, after=KILLED_AT * seconds)))
        arguments = ("--resume",)
    processes = [run for _, run in broken] + [play(folder, *arguments)]
    for (stage, run), again in zip(broken, processes[1:], strict=True):
        start, seconds, cpu = again.at("stage_started", stage), *unbroken.took(stage)
        before = run.at("stage_started", stage)
        redone = again.took(stage)
        lost = run.end.seconds - before.seconds + redone[0] - seconds + start.seconds
        lost_cpu = run.end.cpu - before.cpu + redone[1] - cpu + start.cpu
        table.add_row(stage, f"{seconds:.1f}", f"{lost:.1f}", f"{start.seconds:.1f}", f"{lost_cpu:.1f}")
    return table


def main(words: Sequence[str]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = play(folder / "one") if {"one", "kills"} & set(words) else None
        if one is not None:
            console.print(shares("one process", one))
        if "two" in words:
            two = play(folder / "two", "--set=hardware={processes: 2, threads: 1}")
            console.print(shares("two processes, a thread each", two))
        if one is not None and "kills" in words:
            console.print(kills(folder / "kills", one))


if __name__ == "__main__":
    main(sys.argv[1:] or ["one", "two", "kills"])
