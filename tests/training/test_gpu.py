"""The same on a GPU. Skipped where there is none: `pytest -m gpu`.

What can be claimed of the CPU too is tested on both, so that the code for a GPU has run.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from benchmarks.gpu_shapes import Shape, make_policy, phase_of, planned, run_of
from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.errors import StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling.sampler import SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.training import saving
from diagevo.training.grpo import play_phase
from diagevo.training.phase import Rollout
from tests.training import phase
from tests.training.allocated import Allocated
from tests.training.launched import play_alone
from tests.training.sharded import as_on_a_gpu

on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
GPU = pytest.param("cuda", marks=on_gpu)
SMALL = Shape("small", 256, 512, 2, 8, True, vocabulary=4096, step_rows=16, step_prompt=16, step_tokens=24)


class Length:
    """Rewards long texts."""

    def measure(self, rollouts: Sequence[Rollout]) -> list[int]:
        return [len(rollout.text) for rollout in rollouts]

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[int]) -> list[float]:
        return [float(measure) for measure in measures]


@dataclass
class Peak:
    """The most bytes that tensors took within."""

    most: int = 0


@contextmanager
def peak_on(device: str) -> Iterator[Peak]:
    found = Peak()
    if device == "cuda":
        square = torch.ones(8, 8, device=device)
        _ = square @ square  # cuBLAS takes its workspace, which is no tensor of ours
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        yield found
        found.most = torch.cuda.max_memory_allocated() - held
    else:
        with Allocated() as counted:
            yield found
        found.most = counted.most


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_phase_measures_its_reference_and_its_sampler_and_takes_the_memory_of_the_plan(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small shape, stopped after its second step and resumed. The plan reckons with bfloat16, the CPU has
    float32: it allocates an eighth more than the plan says."""
    as_on_a_gpu(monkeypatch.setattr, SMALL.vocabulary)
    write = saving.written

    def written(*given: Any) -> Any:
        with _disable_current_modes():  # what is copied to be saved is the host's memory, not the GPU's
            return write(*given)

    monkeypatch.setattr(saving, "written", written)
    config, start = run_of(SMALL, device=device), make_policy(SMALL, tmp_path / "start", device=device)
    given = phase_of(config, start, tmp_path, "none:none", {})

    def stop(step: int, *_: Any) -> None:
        if step == 2:
            raise StoppedSafely("enough")

    with peak_on(device) as peak, pytest.raises(StoppedSafely):
        play_phase(given, Length(), stop, StopFlag())
    assert 0.8 <= planned(config, SMALL) / peak.most <= 1.3

    found = play_phase(given, Length(), lambda *_: None, StopFlag())
    assert (found.resumed_from, found.measures.steps) == (2, 3)
    bounds = TrainingConfig()
    kl, gap = (1e-6, 1e-5) if device == "cpu" else (bounds.first_kl, bounds.sampling_gap)
    assert found.measures.first_kl is not None
    assert abs(found.measures.first_kl) <= kl
    assert found.measures.sampling_gap is not None
    assert found.measures.sampling_gap <= gap


@pytest.mark.parametrize("device", [GPU])
def test_greedy_sampling_in_float32_is_that_of_the_cpu(device: str, tiny_model: Path) -> None:
    prompts = [row.prompt for row in phase.ROWS]
    params = SamplingParams(temperature=0.0, max_new_tokens=12)
    found = [
        TransformersSampler(tiny_model, device=where, dtype="float32").sample(
            prompts, n=2, params=params, seed=0
        )
        for where in ("cpu", device)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("device", [GPU])
def test_a_closed_sampler_gives_its_memory_back(device: str, tiny_model: Path) -> None:
    before = torch.cuda.memory_reserved()
    sampler = TransformersSampler(tiny_model, device=device)
    assert torch.cuda.memory_reserved() > before
    sampler.close()
    assert torch.cuda.memory_reserved() == before


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_phase_is_played_and_can_be_resumed(
    device: Literal["cpu", "cuda"], tiny_model: Path, tmp_path: Path
) -> None:
    played: list[int] = []

    def on_step(step: int, rollouts: list[Rollout], rewards: list[float]) -> None:
        played.append(step)
        if played == [1, 2]:
            raise KeyboardInterrupt

    def go() -> None:
        hardware = HardwareConfig(device=device)
        phase.trained(tiny_model, tmp_path, on_step=on_step, hardware=hardware)

    with pytest.raises(KeyboardInterrupt):
        go()
    go()
    assert played == [1, 2, 2, 3]
    assert (tmp_path / "final/model.safetensors").read_bytes() != (
        tiny_model / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("device", [GPU])
def test_a_phase_in_a_process_of_its_own_gives_the_gpu_back(
    device: Literal["cuda"], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run plays it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    free, _ = torch.cuda.mem_get_info()
    steps: list[int] = []
    hardware = HardwareConfig(device=device)
    summary = play_alone(
        phase.of(tiny_model, tmp_path, hardware=hardware),
        lambda step, rollouts, rewards: steps.append(step),
    )
    assert (summary.steps, steps) == (3, [1, 2, 3])
    assert torch.cuda.mem_get_info()[0] >= free - 2**28
