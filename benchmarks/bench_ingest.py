"""Ingest of a large rollout log: its CPU time beside reading and decoding the JSON alone, and its memory.

Files of verl (groups of eight, 128 groups a step, 1 kB a response) go in by the real command, twice: the
second time nothing is new. `python -m benchmarks.bench_ingest 1000000 FOLDER` asks a million and keeps them.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.__main__ import table
from benchmarks.rows import Row, cpu_and_peak

GROUP, GROUPS = 8, 128
TEXT = "First we rearrange the equation, then we substitute and check the result. " * 13
ROLLOUTS, MOST = 100_000, {100_000: 6.0, 1_000_000: 5.0}
"""How many rollouts, and how many times the time of decoding them may be taken."""
DECODE = """
import json, pathlib, sys
for file in sorted(pathlib.Path(sys.argv[1]).glob("*.jsonl")):
    with file.open() as lines:
        for line in lines:
            json.loads(line)
"""
PROGRAM = [sys.executable, "-c", "from diagevo.cli.main import app; app()"]


def write(rollouts: int, folder: Path) -> None:
    """As verl has them: a hundred thousand prompts, about half of the rewards 1."""
    rng = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for step in range(1, rollouts // (GROUP * GROUPS) + 1):
        with (folder / f"{step}.jsonl").open("w") as out:
            for _ in range(GROUPS):
                prompt = f"Question {rng.randrange(100_000)}: solve the equation."
                for sample in range(GROUP):
                    score = float(rng.random() < 0.5)
                    text = f"{TEXT}{step} {sample} {rng.random()}"
                    row = {"input": prompt, "output": text, "gts": "7", "score": score, "step": step}
                    out.write(json.dumps(row) + "\n")


def measured(rollouts: int, folder: Path) -> list[Row]:
    files, database = folder / "rollouts", f"sqlite:///{folder}/diagevo.db"
    write(rollouts, files)
    decoding, _ = cpu_and_peak([sys.executable, "-c", DECODE, str(files)])
    ingest = [*PROGRAM, "ingest", "verl", str(files), "--run", "bench", "--db", database]
    found = []
    for when, most in (("", MOST.get(rollouts)), (", again", None)):
        seconds, peak = cpu_and_peak(ingest)
        ratio = seconds / decoding
        found.append(
            Row(
                f"ingest of {rollouts:,} rollouts{when}",
                seconds,
                "s CPU",
                decoding,
                "json.loads of each line",
                ratio,
                "" if most is None else f"≤ {most:g} ×",
                None if most is None else ratio <= most,
                f"peak {peak / 2**20:,.0f} MiB",
            )
        )
    return found


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return measured(ROLLOUTS, Path(folder))


if __name__ == "__main__":
    Console().print(table(measured(int(sys.argv[1]), Path(sys.argv[2]))))
