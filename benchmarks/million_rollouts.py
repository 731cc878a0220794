"""How long a large rollout log takes to ingest, and how much memory.

    python -m benchmarks.million_rollouts 1000000 FOLDER

Writes verl's files (groups of eight, 128 groups a step, 1 kB a response), ingests them in a process of its
own, and again.
"""

import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

GROUP, GROUPS = 8, 128
TEXT = "First we rearrange the equation, then we substitute and check the result. " * 13


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


def main(rollouts: str, folder: str) -> None:
    files, database = Path(folder) / "rollouts", f"sqlite:///{folder}/diagevo.db"
    write(int(rollouts), files)
    program = [sys.executable, "-c", "from diagevo.cli.main import app; app()"]
    for time_ in ("first", "again"):
        began = time.perf_counter()
        command = [*program, "ingest", "verl", str(files), "--run", "bench", "--db", database]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds = time.perf_counter() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss // 1024
        print(f"{time_}: {seconds:.1f} s, CPU so far {cpu:.1f} s, peak {peak} MiB", flush=True)
        print(told)


if __name__ == "__main__":
    main(*sys.argv[1:])
