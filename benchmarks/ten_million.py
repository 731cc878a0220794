"""Many long runs on one PostgreSQL: what the commands that read take as it fills, beside one run in SQLite.

    python -m benchmarks.ten_million 1000000 10 FOLDER

The events' texts are not stored: none of these commands reads more than a few. The slope is of the
logarithms, over the numbers of runs: 0 for a time that does not grow, 1 for one that grows as the log does.
Times are held against SQLite's, which are taken in turns with them: a busy machine slows both.
"""

import math
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

from benchmarks.bench_commands import PROGRAM
from tests.contracts.databases import PostgresServer, PostgresStores
from tests.memory.audit.long_run import LongRun

COMMANDS = ("runs list", "memory show", "memory why c1", "memory schedule", "memory log -n 3")
REPEAT = 5


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _took(command: Sequence[str]) -> tuple[float, float]:
    """CPU and wall seconds of a child."""
    cpu, wall = _cpu(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return _cpu() - cpu, time.perf_counter() - wall


def _least(sides: Mapping[str, str]) -> dict[tuple[str, str], tuple[float, float]]:
    """By side (its URL) and command, in turns, after one that is not counted."""
    best: dict[tuple[str, str], tuple[float, float]] = {}
    for turn in range(REPEAT + 1):
        for name in COMMANDS:
            for side, url in sides.items():
                of_run = [] if name == "runs list" else ["--run", "run-0"]
                took = _took([*PROGRAM, *name.split(), *of_run, "--db", url])
                if turn:
                    before = best.get((side, name), took)
                    best[side, name] = min(before[0], took[0]), min(before[1], took[1])
    return best


def _slope(points: Mapping[int, float]) -> float:
    """Of the logarithms of ratio and runs, by least squares."""
    x, y = [math.log(n) for n in points], [math.log(s) for s in points.values()]
    middle = sum(x) / len(x)
    over = sum((a - middle) ** 2 for a in x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / over


def _connections(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        )
        row = found.fetchone()
    assert row is not None
    return int(row[0])


def main(events: str, runs: str, folder: str) -> None:
    root = Path(folder)
    (root / "sqlite").mkdir(parents=True)
    server = PostgresServer(root)
    url = PostgresStores(server).new(root).url.replace("+psycopg", "")
    beside = LongRun(root / "sqlite", int(events), run="run-0")
    beside.close()
    sides = {"SQLite": f"sqlite:///{beside.path}", "PostgreSQL": url}
    at = sorted({n for n in (1, 2, 5) if n < int(runs)} | {int(runs)})
    found: dict[int, dict[tuple[str, str], tuple[float, float]]] = {}
    for number in range(int(runs)):
        began = time.perf_counter()
        LongRun(root, int(events), url=url, run=f"run-{number}").close()
        print(f"run {number + 1}: {events} events in {time.perf_counter() - began:.0f} s", flush=True)
        if number + 1 in at:
            found[number + 1] = _least(sides)
            print(f"{_connections(url)} connections at rest, this one among them", flush=True)
            for (side, name), (cpu, wall) in found[number + 1].items():
                print(f"{number + 1:3} runs  {side:10}  {name:16}  {cpu:.2f} s CPU  {wall:.2f} s", flush=True)
    for name in COMMANDS:
        ratios = {
            part: {n: t["PostgreSQL", name][part] / t["SQLite", name][part] for n, t in found.items()}
            for part in (0, 1)
        }
        told = ", ".join(f"{ratio:.2f}" for ratio in ratios[0].values())
        cpu, wall = (_slope(of_runs) for of_runs in ratios.values())
        print(f"{name}: {told} of SQLite's one run; slope {cpu:+.3f} CPU, {wall:+.3f} wall")
    server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
