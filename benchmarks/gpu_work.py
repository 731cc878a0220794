"""The work that bench_gpu.py measures, one figure a function; what each is, is said there."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.gpu_phase import make_start, planned, play
from benchmarks.gpu_shapes import Shape, config_of
from benchmarks.rows import Row
from diagevo.config.models import TrainingConfig
from diagevo.training.footprint import checkpoint
from diagevo.training.shapes import shape_of

# Dense bfloat16 FLOP/s and bytes/s of memory, from NVIDIA's data sheets of these cards (a figure that they
# print for sparse matrices is halved).
DATASHEET = {
    "H200": (989e12, 4.8e12),
    "H100 80GB": (989e12, 3.35e12),
    "H100 PCIe": (756e12, 2.0e12),
    "A100-SXM4-80GB": (312e12, 2.039e12),
    "A100-SXM4-40GB": (312e12, 1.555e12),
}


@dataclass(frozen=True)
class Card:
    """What the card was measured to do."""

    name: str
    flops: float
    traffic: float
    memory: int | None
    """Bytes; None on the CPU."""

    def peak(self, place: int) -> str:
        known = [peaks[place] for name, peaks in DATASHEET.items() if name in self.name]
        unit = ("TFLOP/s", "TB/s")[place]
        return f"data sheet: {known[0] / 1e12:.4g} {unit}" if known else "no data sheet known"


def card_of(device: str) -> Card:
    import torch

    cuda = device == "cuda"
    size, gigabytes = (8192, 4.0) if cuda else (256, 0.01)
    name = torch.cuda.get_device_name(0) if cuda else "the CPU"
    memory = torch.cuda.get_device_properties(0).total_memory if cuda else None
    return Card(name, card_flops(device, size), card_traffic(device, gigabytes), memory)


def card_flops(device: str, size: int) -> float:
    """FLOP a second of a square bfloat16 product."""
    import torch

    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    return 2 * size**3 / _seconds(lambda: a @ a, device, repeat=20)


def card_traffic(device: str, gigabytes: float) -> float:
    """Bytes a second that a copy reads and writes."""
    import torch

    a = torch.empty(int(gigabytes * 1e9), device=device, dtype=torch.uint8)
    b = torch.empty_like(a)
    return 2 * a.numel() / _seconds(lambda: b.copy_(a), device, repeat=10)


def sampling_row(shape: Shape, model: Any, card: Card) -> Row:
    from diagevo.sampling.decoding import Decoding, draw, row_key

    device = model.device.type
    samples = 8
    prompts = [[7 + i] * shape.prompt for i in range(shape.rows // samples)]
    keys = [[row_key(0, ids, g) for g in range(samples)] for ids in prompts]
    settings = Decoding(1.0, 0.99, shape.new, (), 0, rows_at_once=shape.rows)
    reset_memory(device)
    model.eval()
    seconds = _seconds(lambda: draw(model, prompts, keys, settings), device)
    cache = 2 * shape.layers * 8 * 128 * 2 * shape.rows * (shape.prompt + shape.new / 2)
    share = shape.new * (2 * _multiplying(shape, model) + cache) / seconds / card.traffic
    tokens = shape.rows * shape.new / seconds
    note = f"{shape.rows} rows, {_memory(device)}; {card.peak(1)}"
    reference = (tokens / share, "all of the card's memory traffic")
    return Row(f"sampling {shape.name}", tokens, "tokens/s", *reference, share, "", None, note)


def update_row(shape: Shape, model: Any, card: Card) -> Row:
    import torch

    device = model.device.type
    model.train()
    model.gradient_checkpointing_enable()
    ids = torch.randint(7, shape.vocabulary, (shape.micro_batch, shape.length), device=device)

    def update() -> None:
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        # The head row by row, as TRL does in parts: the logits of a whole micro-batch would not fit.
        cut = hidden.detach().requires_grad_()
        for row in range(shape.micro_batch):
            model.lm_head(cut[row]).float().logsumexp(-1).mean().backward()
        hidden.backward(cut.grad)
        model.zero_grad(set_to_none=True)

    reset_memory(device)
    seconds = _seconds(update, device)
    tokens = shape.micro_batch * shape.length / seconds
    share = 8 * _multiplying(shape, model) * tokens / card.flops
    note = f"{shape.micro_batch} × {shape.length} tokens, {_memory(device)}; {card.peak(0)}"
    reference = (tokens / share, "all of the card's arithmetic")
    return Row(f"update {shape.name}", tokens, "tokens/s", *reference, share, "", None, note)


def _multiplying(shape: Shape, model: Any) -> int:
    """Weights that a token is multiplied with: all but an embedding that is only looked up."""
    weights = sum(value.numel() for value in model.parameters())
    return weights if shape.tied else weights - shape.vocabulary * shape.hidden


def phase_rows(shape: Shape, device: str) -> Iterator[Row]:
    """`train` itself, whole weights and reference: a phase that is killed after its second step in a process
    of its own, and goes on here."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_start(shape, device, folder)
        began = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.gpu_phase", shape.name, device, str(folder)]
        killed = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if killed.returncode != -signal.SIGKILL:
            raise RuntimeError(f"the phase that was to be killed ended with status {killed.returncode}")
        note = "until the first two of four steps were saved, the model loaded before"
        yield Row(f"killed phase {shape.name}", time.perf_counter() - began, "s", *_ALONE, note)
        yield from resumed_rows(shape, device, folder)


_ALONE: tuple[None, str, None, str, None] = (None, "", None, "", None)


def resumed_rows(shape: Shape, device: str, folder: Path) -> Iterator[Row]:
    """The steps after the kill, and what the whole phase measured of itself."""
    reset_memory(device)
    began, steps = time.perf_counter(), []

    def on_step(step: int) -> None:
        steps.append((step, time.perf_counter()))

    with _timed_saves() as saves:
        measures = play(shape, device, folder, on_step=on_step).measures
    name, note = shape.name, f"{shape.step_rows} completions of up to {shape.step_tokens} tokens"
    yield Row(
        f"resume {name}", steps[0][1] - began, "s", *_ALONE, f"until step {steps[0][0]} has its rewards"
    )
    yield Row(f"GRPO step {name}", steps[1][1] - steps[0][1], "s", *_ALONE, f"{note}, {_memory(device)}")
    counted = shape_of(config_of(shape).to_dict())
    assert counted is not None
    size = checkpoint(counted) / 1e9
    yield Row(
        f"checkpoint {name}", sum(saves) / len(saves), "s", *_ALONE, f"{size:.3g} GB, in the step's way"
    )
    bounds = TrainingConfig()
    for figure, value, bound in (
        (f"KL at step 1 {name}", measures.first_kl, bounds.first_kl),
        (f"sampler against trainer {name}", measures.sampling_gap, bounds.sampling_gap),
    ):
        met = value is not None and value <= bound
        yield Row(figure, value, "", bound, "most that a run allows", None, "", met, "")
    peak = _peak(device)
    if peak is not None:
        plan = planned(shape, device)
        said = "train --plan, of the phase at its fullest"
        yield Row(f"peak memory {name}", peak / 1e9, "GB", plan / 1e9, said, peak / plan, "", None, "")


@contextmanager
def _timed_saves() -> Iterator[list[float]]:
    """Seconds that each checkpoint stands in the way of the next step."""
    from diagevo.training.trainer import PhaseTrainer

    save, saves = PhaseTrainer._save_checkpoint, []

    def timed(self: Any, *given: Any) -> None:
        began = time.perf_counter()
        save(self, *given)
        saves.append(time.perf_counter() - began)

    with patch.object(PhaseTrainer, "_save_checkpoint", timed):
        yield saves


def _seconds(work: Callable[[], Any], device: str, repeat: int = 1) -> float:
    """Seconds of one call, after one to warm up."""
    import torch

    def synchronise() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    work()
    synchronise()
    began = time.perf_counter()
    for _ in range(repeat):
        work()
    synchronise()
    return (time.perf_counter() - began) / repeat


def reset_memory(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _peak(device: str) -> int | None:
    import torch

    return torch.cuda.max_memory_allocated() if device == "cuda" else None


def _memory(device: str) -> str:
    import torch

    peak = _peak(device)
    if peak is None:
        return "on the CPU: no figure of a GPU"
    whole = torch.cuda.get_device_properties(0).total_memory
    return f"{peak / 2**30:.1f} GiB of {whole / 2**30:.0f}"
