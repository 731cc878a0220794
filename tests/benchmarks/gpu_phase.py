"""The phase that bench_gpu.py kills and resumes: four steps of `train` with a checkpoint after each.

`python -m tests.benchmarks.gpu_phase SHAPE DEVICE FOLDER` plays it from FOLDER/start and kills itself once
its second step is saved.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu_work import SHAPES, TINY, Shape


class Length:
    """Rewards long texts."""

    def measure(self, rollouts: Any) -> list[int]:
        return [len(rollout.text) for rollout in rollouts]

    def rewards(self, rollouts: Any, measures: Any) -> list[float]:
        return [float(measure) for measure in measures]


def play(
    shape: Shape,
    device: str,
    folder: Path,
    *,
    resume: bool,
    on_step: Callable[[int], None],
    saves: list[float],
) -> Any:
    """`saves` gets the seconds that each checkpoint stood in the way of the next step."""
    from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig
    from diagevo.training.grpo import TrainingRow, train
    from diagevo.training.trainer import PhaseTrainer

    save = PhaseTrainer._save_checkpoint

    def timed(self: Any, *given: Any) -> None:
        began = time.perf_counter()
        save(self, *given)
        saves.append(time.perf_counter() - began)

    setattr(PhaseTrainer, "_save_checkpoint", timed)  # noqa: B010  (an own signature, which is the same)
    questions = shape.step_rows // 8
    return train(
        folder / "start",
        [
            TrainingRow(f"q{i}", [{"role": "user", "content": f"What is {i:02}?"}])
            for i in range(4 * questions)
        ],
        Length(),
        GRPOConfig(max_steps=4, batch_questions=questions, group=8, micro_batch=shape.micro_batch),
        SamplingConfig(max_new_tokens=shape.step_tokens),
        output=folder / "final",
        work=folder / "work",
        seed=0,
        on_step=lambda step, rollouts, rewards: on_step(step),
        resume=resume,
        hardware=HardwareConfig(device="cuda" if device == "cuda" else "cpu"),
    )


def main() -> None:
    from diagevo.training import checkpoints

    name, device, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    [shape] = [shape for shape in (*SHAPES, TINY) if shape.name == name]

    def die_after_two(step: int) -> None:
        if step == 3:
            while checkpoints.find(folder / "work").step < 2:
                time.sleep(0.05)  # it is published beside the next step
            os.kill(os.getpid(), signal.SIGKILL)

    play(shape, device, folder, resume=False, on_step=die_after_two, saves=[])


if __name__ == "__main__":
    main()
