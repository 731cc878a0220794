"""A small phase for the tests: the same rows, reward and settings in this process and in others.

`python -m tests.training.phase START FOLDER` plays it and notes each step in FOLDER/steps.jsonl. The variable
KILL says where the process kills itself: "step:2" while the step is reported, "write:2" while its
checkpoint is written, "save:2" while it is read through, "rotate:2" when it is in its place and old ones are
not yet removed.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import safetensors.torch
from torch.distributed import distributed_c10d

from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig, TrainingConfig
from diagevo.progress import StopFlag
from diagevo.sampling.engine import Engine
from diagevo.training import checkpoints, grpo
from diagevo.training.grpo import play_phase
from diagevo.training.phase import (
    OnStep,
    Phase,
    Reward,
    RewardSpec,
    Rollout,
    TrainingRow,
    TrainingSummary,
    no_update,
)
from diagevo.training.plan import PhasePlan
from diagevo.training.saving import Saving

ROWS = [TrainingRow(f"q{i}", [{"role": "user", "content": f"{i}+{i * i}?"}]) for i in range(5)]
# Groups of three: on two ranks a group lies on both, and the last step, of one group, needs padding.
SETTINGS = GRPOConfig(max_steps=9, batch_questions=2, group=3, micro_batch=4, learning_rate=1e-3)
SAMPLING = SamplingConfig(max_new_tokens=12, max_prompt_tokens=32)
SEED = 5
SLOW = "slow"
SHARD = "shard-00001-model-00001-of-00001.safetensors"
"""In a checkpoint: the weights and AdamW's moments that the first rank wrote."""


class LetterReward:
    """Counts a letter (measured a rank) less the mean count of the step (over all ranks)."""

    def __init__(
        self,
        letter: str = "e",
        kill: int | None = None,
        hang: int | None = None,
        patience: float | None = None,
        slow: Sequence[int] = (),
        work: str = "",
        stop: StopFlag | None = None,
        engine: Engine | None = None,
    ) -> None:
        """`kill`, `hang`: the rank that does so at step 2, once step 1 is saved in `work`. `patience`:
        seconds for which the others wait from there on. `slow`: a step and the rank that does not end it
        before `stop` is overdue; it says in `work` that it has begun.
        """
        self.letter = letter
        self.kill = kill
        self.hang = hang
        self.patience = patience
        self.slow = slow
        self.stop = stop
        self.work = Path(work)

    def measure(self, rollouts: Sequence[Rollout]) -> list[Any]:
        rank = int(os.environ.get("RANK", "0"))
        second = bool(rollouts) and rollouts[0].step == 2
        if second and self.kill == rank:
            wait_until_saved(self.work, 1)
            os.kill(os.getpid(), signal.SIGKILL)
        if second and self.hang == rank:
            time.sleep(600)
        if second and self.patience is not None:
            ranks = distributed_c10d._get_default_group()
            distributed_c10d._set_pg_timeout(timedelta(seconds=self.patience), ranks)
        if rollouts and list(self.slow) == [rollouts[0].step, rank]:
            assert self.stop is not None
            (self.work / SLOW).touch()
            while not self.stop.overdue:
                time.sleep(0.01)
        return [rollout.text.count(self.letter) for rollout in rollouts]

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[Any]) -> list[float]:
        mean = sum(measures) / len(measures)
        return [measure - mean for measure in measures]


def last_saved(work: Path) -> int:
    return checkpoints.find(work).step


def wait_until_saved(work: Path, step: int) -> None:
    """Checkpoints are published beside the next step."""
    while last_saved(work) < step:
        time.sleep(0.01)


def kill_while_writing(step: int) -> None:
    """Where a checkpoint is saved after each step: once that one's file is there, and half of it not."""
    save, calls = safetensors.torch.save, []

    def killed(tensors: Any, **named: Any) -> bytes:
        calls.append(tensors)
        if len(calls) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return save(tensors, **named)

    safetensors.torch.save = killed


def of(start: Path, folder: Path, **changes: Any) -> Phase:
    """The phase from `start`, with its output in `folder`; what is named otherwise than above."""
    phase = Phase(
        start=start,
        rows=tuple(ROWS),
        reward=RewardSpec("tests.training.phase:LetterReward", {"work": str(folder / "work")}),
        settings=SETTINGS,
        sampling=SAMPLING,
        hardware=HardwareConfig(),
        training=TrainingConfig(),
        output=folder / "final",
        work=folder / "work",
        seed=SEED,
    )
    return replace(phase, **changes)


def trainer(
    given: Phase, plan: PhasePlan, saving: Saving, on_step: OnStep = lambda step, rollouts, rewards: None
) -> Any:
    """TRL's trainer as `play_phase` makes it, for a look inside."""
    return grpo._build_trainer(
        given,
        plan,
        reward=LetterReward(),
        on_step=on_step,
        on_update=no_update,
        saving=saving,
        check=lambda steps: None,
        stop=StopFlag(),
        saved=0,
        engine=None,
    )


def trained(
    start: Path,
    folder: Path,
    *,
    reward: Reward | None = None,
    on_step: OnStep = lambda step, rollouts, rewards: None,
    stop: StopFlag | None = None,
    engine: Engine | None = None,
    **changes: Any,
) -> TrainingSummary:
    """The phase in this process. `engine`: the process's, where it has one for more than this phase."""
    given = of(start, folder, **changes)
    if given.hardware.colocate_vllm and engine is None:
        engine = engine_of(given)
    stop = StopFlag() if stop is None else stop
    return play_phase(given, reward or LetterReward(), on_step, stop, engine=engine)


def engine_of(given: Phase) -> Engine:
    return Engine(given.start, given.hardware, given.sampling, lora=given.training.lora, rank=0)


def play(start: Path, folder: Path) -> TrainingSummary:
    folder.mkdir(parents=True, exist_ok=True)
    where, _, number = os.environ.get("KILL", "").partition(":")

    def on_step(step: int, rollouts: list[Rollout], rewards: list[float]) -> None:
        with (folder / "steps.jsonl").open("a") as file:
            played = [asdict(rollout) for rollout in rollouts]
            saved = last_saved(folder / "work")
            file.write(json.dumps([step, played, rewards, saved]) + "\n")
        if where == "step" and step == int(number):
            wait_until_saved(folder / "work", step - 1)
            os.kill(os.getpid(), signal.SIGKILL)

    if where == "write":
        kill_while_writing(int(number))
    if where == "save":
        flush = checkpoints._digest_and_flush

        def killed(path: Path) -> str:
            if path.name == SHARD and f"checkpoint-{number}" in str(path):
                os.kill(os.getpid(), signal.SIGKILL)
            return flush(path)

        checkpoints._digest_and_flush = killed
    if where == "rotate":
        rotate = checkpoints.rotate

        def killed_before(work: Path) -> None:
            if last_saved(work) == int(number):
                os.kill(os.getpid(), signal.SIGKILL)
            rotate(work)

        checkpoints.rotate = killed_before
    return trained(start, folder, on_step=on_step)


def steps(folder: Path) -> dict[int, Any]:
    """What was reported at each step: the last report counts."""
    lines = (folder / "steps.jsonl").read_text().splitlines()
    return {step: (played, rewards) for step, played, rewards, _ in map(json.loads, lines)}


def main() -> None:
    play(Path(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
