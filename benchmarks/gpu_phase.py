"""The phase that bench_gpu.py kills and resumes: four steps with a checkpoint after each.

`python -m benchmarks.gpu_phase SHAPE DEVICE FOLDER` plays it from FOLDER/start and kills itself once
its second step is saved.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu_shapes import SHAPES, TINY, Shape, config_of, random_model
from diagevo.config.loading import of_profile
from diagevo.config.models import Config, GRPOConfig, HardwareConfig, SamplingConfig
from diagevo.progress import StopFlag
from diagevo.training.footprint import loads
from diagevo.training.phase import Phase, RewardSpec, TrainingRow, TrainingSummary
from diagevo.training.shapes import shape_of
from tests.sampling.tiny_model import make_tiny_tokenizer


class Length:
    """Rewards long texts."""

    def measure(self, rollouts: Any) -> list[int]:
        return [len(rollout.text) for rollout in rollouts]

    def rewards(self, rollouts: Any, measures: Any) -> list[float]:
        return [float(measure) for measure in measures]


def config_of_phase(shape: Shape, device: str) -> Config:
    """The run whose solver's phase is played: whole weights and reference, our own sampling loop."""
    grpo = GRPOConfig(
        max_steps=4, batch_questions=shape.step_rows // 8, group=8, micro_batch=shape.micro_batch
    )
    sampling = SamplingConfig(max_prompt_tokens=shape.step_prompt, max_new_tokens=shape.step_tokens)
    hardware = HardwareConfig(device="cuda" if device == "cuda" else "cpu")
    changes = {"solver_grpo": grpo, "sampling": sampling, "hardware": hardware}
    return of_profile("embedded").config.model_copy(update=changes)


def planned(shape: Shape, device: str) -> int:
    """Bytes of tensors that `train --plan` reckons for the phase at its fullest."""
    counted = shape_of(config_of(shape).to_dict())
    assert counted is not None
    solver = [
        load
        for load in loads(config_of_phase(shape, device), counted, counted)
        if load.stage.startswith("solver")
    ]
    return max(sum(load.parts.values()) - load.parts["process"] for load in solver)


def make_start(shape: Shape, device: str, folder: Path) -> None:
    random_model(shape, device).save_pretrained(folder / "start")
    make_tiny_tokenizer().save_pretrained(folder / "start")


def play(shape: Shape, device: str, folder: Path, *, on_step: Callable[[int], None]) -> TrainingSummary:
    from diagevo.training.grpo import play_phase

    config = config_of_phase(shape, device)
    phase = Phase(
        start=folder / "start",
        rows=tuple(
            TrainingRow(f"q{i}", [{"role": "user", "content": f"What is {i:02}?"}])
            for i in range(4 * config.solver_grpo.batch_questions)
        ),
        reward=RewardSpec("benchmarks.gpu_phase:Length"),
        settings=config.solver_grpo,
        sampling=config.sampling,
        hardware=config.hardware,
        training=config.training,
        output=folder / "final",
        work=folder / "work",
        seed=0,
    )
    return play_phase(phase, Length(), lambda step, rollouts, rewards: on_step(step), StopFlag())


def main() -> None:
    from diagevo.training import checkpoints

    name, device, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    [shape] = [shape for shape in (*SHAPES, TINY) if shape.name == name]

    def die_after_two(step: int) -> None:
        if step == 3:
            while checkpoints.find(folder / "work").step < 2:
                time.sleep(0.05)  # it is published beside the next step
            os.kill(os.getpid(), signal.SIGKILL)

    play(shape, device, folder, on_step=die_after_two)


if __name__ == "__main__":
    main()
