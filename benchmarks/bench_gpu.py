"""What one GPU does with the shapes of Qwen3-0.6B, 4B and 8B, weights drawn at random, in bfloat16.

`make bench-gpu`, on one GPU where there are several; exit code 4 where there is no CUDA device. Every shape
is measured in a process of its own, so one that runs out of memory or of time is reported and the others go
on. Each figure is printed as it comes and kept in bench-gpu.json. `python -m benchmarks gpu` does the
same and, without a GPU, plays a tiny shape on the CPU through the same code; such rows say so and are no
figures.

Shares are of what the card was measured to do just before: a square product of 8192 for arithmetic, a copy of
4 GB for memory traffic. Notes give the data sheet's peak beside it (DATASHEET).

- sampling: our decoding loop, no row ever ends. A step reads every weight and the cache once, so its share is
  of memory traffic.
- update: forward and backward with gradient checkpointing of one micro-batch, 8 FLOP a weight that multiplies
  and token (the forward pass is done twice; attention's own products, some 4 %, are left out). No optimizer.
- phase: `train` itself, 8 questions × 8 completions a step, optimizer, KL reference and all (gpu_phase.py).
  It is killed once its second step is saved, and goes on: seconds of the kill, the resume, a step and a
  checkpoint; KL at step 1 and the sampler against the trainer, as a run measures them; peak memory beside the
  plan's. It needs 20 bytes a weight; where the card has less, the row says so.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu_shapes import SHAPES, TINY, Shape, random_model
from benchmarks.gpu_work import Card, card_of, phase_rows, reset_memory, sampling_row, update_row
from benchmarks.rows import Row

OUTPUT = Path("bench-gpu.json")
NO_GPU = 4  # exit code
_MARK = "figure: "  # begins a line that is for the parent
PATIENCE = 900.0  # seconds that one process gets


def rows() -> list[Row]:
    """All figures. Without a GPU: the same code with a tiny shape on the CPU."""
    import torch

    if torch.cuda.is_available():
        return list(measure("cuda", SHAPES))
    print("bench_gpu: no CUDA device; a tiny shape on the CPU shows that the code runs, no more")
    return list(measure("cpu", [TINY]))


def measure(device: str, shapes: Sequence[Shape]) -> Iterator[Row]:
    """Each shape in a process of its own; rows as they come, also into OUTPUT."""
    done: list[Row] = []
    card = None
    for job in ["card", *(shape.name for shape in shapes)]:
        for answer in _in_a_process(job, device, card):
            if "flops" in answer:
                card = Card(**answer)
                print(
                    f"{card.name}: {card.flops / 1e12:.4g} TFLOP/s, {card.traffic / 1e12:.4g} TB/s",
                    flush=True,
                )
                continue
            row = Row(**answer)
            done.append(row)
            figure = "–" if row.measured is None else f"{row.measured:,.4g} {row.unit}"
            share = "" if row.ratio is None else f", {row.ratio:.0%} of {row.reference_name}"
            print(f"{row.name}: {figure}{share}; {row.note}", flush=True)
            known = {} if card is None else asdict(card)
            OUTPUT.write_text(json.dumps({"card": known, "rows": [asdict(r) for r in done]}, indent=1) + "\n")
            yield row
        if card is None:
            return  # Nothing to compare with, and most likely nothing that works.


def _in_a_process(job: str, device: str, card: Card | None) -> Iterator[dict[str, Any]]:
    """What a process of its own prints, line by line; a row that says so where it fails."""
    known = "null" if card is None else json.dumps(asdict(card))
    command = [sys.executable, "-m", "benchmarks.bench_gpu", "--job", job, "--device", device]
    # One GPU, where there are several: TRL refuses to train on all of them in one process.
    lent = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    process = subprocess.Popen(
        [*command, "--card", known],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": lent},
    )
    late = threading.Event()

    def end() -> None:
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(PATIENCE, end)
    timer.start()
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith(_MARK):
                yield json.loads(line.removeprefix(_MARK))
        status = process.wait()
    finally:
        timer.cancel()
        if process.poll() is None:
            end()
    if status != 0:
        why = f"not done after {PATIENCE:g} s" if late.is_set() else f"its process ended with status {status}"
        yield asdict(_failed(job, why))


def _failed(name: str, why: str) -> Row:
    return Row(name, None, "", None, "", None, "", None, why)


def play(job: str, device: str, card: Card | None) -> None:
    """The work of one process: a line of JSON for each figure."""
    if job == "card":
        _say(asdict(card_of(device)))
        return
    assert card is not None
    [shape] = [shape for shape in (*SHAPES, TINY) if shape.name == job]
    weights = _without_optimizer(shape, device, card)
    reset_memory(device)
    name = f"GRPO step {shape.name}"
    if card.memory is not None and 20 * weights > 0.9 * card.memory:
        needed, there = 20 * weights / 2**30, card.memory / 2**30
        _say(asdict(_failed(name, f"needs {needed:.0f} GiB, the card has {there:.0f}: shard it (fsdp)")))
        return
    _try_all(name, lambda: phase_rows(shape, device))


def _without_optimizer(shape: Shape, device: str, card: Card) -> int:
    """Sampling and update. Returns the number of weights; nothing of the model is left when it does."""
    model = random_model(shape, device)
    for name, work in (("sampling", sampling_row), ("update", update_row)):
        _try(f"{name} {shape.name}", lambda work=work: work(shape, model, card))
    return sum(value.numel() for value in model.parameters())


def _try(name: str, work: Callable[[], Row]) -> None:
    _try_all(name, lambda: iter([work()]))


def _try_all(name: str, work: Callable[[], Iterator[Row]]) -> None:
    import torch

    try:
        for row in work():
            _say(asdict(row))
        return
    except torch.OutOfMemoryError as error:
        row = _failed(name, f"out of memory: {str(error).splitlines()[0]}")
    except Exception as error:  # what fails on a card is a row of the table, not the end of it
        row = _failed(name, f"{type(error).__name__}: {error}")
    _say(asdict(row))


def _say(answer: dict[str, Any]) -> None:
    print(_MARK + json.dumps(answer), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", help="The name of one shape, or `card`: what a process of its own plays.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--card", type=json.loads)
    options = parser.parse_args()
    if options.job is not None:
        play(options.job, options.device, None if options.card is None else Card(**options.card))
        return 0
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: nothing was measured (python -m benchmarks gpu tries the code on the CPU)")
        return NO_GPU
    found = list(measure("cuda", SHAPES))
    print(f"{len(found)} figures in {OUTPUT}")
    return 1 if any(row.measured is None for row in found if "shard it" not in row.note) else 0


if __name__ == "__main__":
    sys.exit(main())
