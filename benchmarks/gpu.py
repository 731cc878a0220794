"""The first thirty minutes on a GPU: `make bench-gpu`, or `python -m benchmarks gpu`.

By the minute in which a part begins:

0 install: versions, whether they fit together, cards.
3 engine: two policies take turns in vLLM: its runner, memory at every line, greedy answers beside
  transformers', five cycles.
8 phase: three steps beside a solver that votes: tensors apart, first KL, log-prob gap, peak beside the plan,
  seconds a part.
13 resume: killed after step 2 and resumed; memory that is full when the engine wakes.
16 fsdp: FSDP2 on one rank over NCCL (gloo on the CPU), its checkpoint; sdpa beside FlashAttention.
20 decode: tokens a second of 161 and 256 rows, seeded or not, with log-probabilities or without.
24 lora: peak at the start, the adapter in its place, prefixes of an adapter before.
28 hold8b: 8B: weights into the engine with 1 and 12 threads, checksums, seconds of a save.

Weights are drawn at random, nothing is fetched. Each part is a process of its own and a record of
bench-gpu.json: its figures, `skipped` with why, or `failed` with the error; the others go on. Exit code 1
where one failed. Without a GPU the same code plays a tiny shape: that it runs, no figure of a GPU. What needs
vLLM is skipped where there is none.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

MINUTES = {"install": 0, "engine": 3, "phase": 8, "resume": 13}
MINUTES |= {"fsdp": 16, "decode": 20, "lora": 24, "hold8b": 28}
PROGRAM = "benchmarks.gpu_parts"
OUTPUT = Path("bench-gpu.json")
PATIENCE = 900.0  # seconds that a part gets
FIGURE, SKIPPED, FAILED = "figure: ", "skipped: ", "failed: "  # begin the lines that are for the parent
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


def played(part: str, folder: Path, patience: float) -> dict[str, Any]:
    """Its record, in a process of its own."""
    record: dict[str, Any] = {"part": part, "minute": MINUTES[part], "status": "done", "figures": {}}
    # One GPU, where there are several: TRL refuses to train on all of them in one process.
    lent = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    began, why, log = time.perf_counter(), f"not done after {patience:g} s", folder / "log"
    with log.open("w") as output, log.open(errors="replace") as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, part, str(folder)],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **_OFFLINE, "CUDA_VISIBLE_DEVICES": lent},
        )
        try:
            why = f"ended with status {process.wait(patience)}"
        except subprocess.TimeoutExpired:
            pass
        finally:
            with suppress(ProcessLookupError):  # what it started too
                os.killpg(process.pid, signal.SIGKILL)
        said = [line.strip() for line in lines if line.strip()]
    for line in said:
        if line.startswith(FIGURE):
            record["figures"] |= json.loads(line.removeprefix(FIGURE))
        elif line.startswith(SKIPPED):
            record |= {"status": "skipped", "why": line.removeprefix(SKIPPED)}
    if process.wait() != 0:
        told = [line.removeprefix(FAILED) for line in said if line.startswith(FAILED)]
        record |= {"status": "failed", "why": (told or [why])[-1], "log": said[-30:]}
    return record | {"seconds": round(time.perf_counter() - began, 1)}


def main(words: Sequence[str]) -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks gpu", description=__doc__, formatter_class=form)
    parser.add_argument("parts", nargs="*", metavar="PART", help="which are played; all where none is named")
    parser.add_argument("--skip", action="append", default=[], choices=MINUTES)
    asked = parser.parse_args(words)
    if unknown := set(asked.parts) - set(MINUTES):
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are: {', '.join(MINUTES)}")
    records: list[dict[str, Any]] = []
    for part in MINUTES:
        if part in asked.skip or (asked.parts and part not in asked.parts):
            record = {"part": part, "minute": MINUTES[part], "status": "skipped", "why": "not asked for"}
        else:
            with tempfile.TemporaryDirectory(prefix="bench-gpu-") as folder:
                record = played(part, Path(folder), PATIENCE)
            print(json.dumps({name: record[name] for name in record if name != "log"}, indent=1), flush=True)
        records.append(record)
        OUTPUT.write_text(json.dumps(records, indent=1) + "\n")
    print(json.dumps({record["part"]: record["status"] for record in records}))
    return 1 if any(record["status"] == "failed" for record in records) else 0
