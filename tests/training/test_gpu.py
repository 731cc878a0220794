"""The same on a GPU. Skipped where there is none."""

from pathlib import Path

import pytest
import torch

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.sampling.sampler import SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.training.grpo import Rollout
from diagevo.training.launch import train_in_processes
from diagevo.training.launch_spec import RewardSpec
from tests.training import phase

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_greedy_sampling_in_float32_is_that_of_the_cpu(tiny_model: Path) -> None:
    prompts = [row.prompt for row in phase.ROWS]
    params = SamplingParams(temperature=0.0, max_new_tokens=12)
    found = [
        TransformersSampler(tiny_model, device=device, dtype="float32").sample(
            prompts, n=2, params=params, seed=0
        )
        for device in ("cpu", "cuda")
    ]
    assert found[0] == found[1]


def test_a_closed_sampler_gives_its_memory_back(tiny_model: Path) -> None:
    before = torch.cuda.memory_reserved()
    sampler = TransformersSampler(tiny_model, device="cuda")
    assert torch.cuda.memory_reserved() > before
    sampler.close()
    assert torch.cuda.memory_reserved() == before


def test_a_phase_plays_on_the_gpu_and_can_be_resumed(tiny_model: Path, tmp_path: Path) -> None:
    played: list[int] = []

    def on_step(step: int, rollouts: list[Rollout], rewards: list[float]) -> None:
        played.append(step)
        if played == [1, 2]:
            raise KeyboardInterrupt

    def go(resume: bool) -> None:
        hardware = HardwareConfig(device="cuda")
        phase.trained(tiny_model, tmp_path, on_step=on_step, resume=resume, hardware=hardware)

    with pytest.raises(KeyboardInterrupt):
        go(resume=False)
    go(resume=True)
    assert played == [1, 2, 2, 3]
    assert (tmp_path / "final/model.safetensors").read_bytes() != (
        tiny_model / "model.safetensors"
    ).read_bytes()


def test_a_phase_in_a_process_of_its_own_gives_the_gpu_back(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run plays it."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    free, _ = torch.cuda.mem_get_info()
    steps: list[int] = []
    summary = train_in_processes(
        tiny_model,
        phase.ROWS,
        RewardSpec("tests.training.phase:LetterReward", {}),
        phase.SETTINGS,
        phase.SAMPLING,
        output=tmp_path / "final",
        work=tmp_path / "work",
        seed=phase.SEED,
        on_step=lambda step, rollouts, rewards: steps.append(step),
        resume=False,
        hardware=HardwareConfig(device="cuda", train_gpus=(0,)),
        training=TrainingConfig(),
        logs=tmp_path / "logs",
    )
    assert (summary.steps, steps) == (3, [1, 2, 3])
    assert torch.cuda.mem_get_info()[0] >= free - 2**28
