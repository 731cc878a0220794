"""The small phase in ranks of their own, and what it must equal: the same phase in one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.progress import StopFlag
from diagevo.training.grpo import Rollout, TrainingSummary
from diagevo.training.launch import train_in_processes
from diagevo.training.launch_spec import RewardSpec
from tests.training import phase

Reports = dict[int, tuple[list[Rollout], list[float]]]
LOGS = "rounds/001/solver-logs"


def launch(
    start: Path,
    folder: Path,
    hardware: HardwareConfig,
    *,
    resume: bool = False,
    on_step: Callable[[int], None] = lambda step: None,
    keep_up: Callable[[], None] = lambda: None,
    stop: StopFlag | None = None,
    save_steps: int = 1,
    **reward: Any,
) -> tuple[TrainingSummary, Reports]:
    """Play it in `folder`; by step, the rollouts and rewards that the launcher was told."""
    reports: Reports = {}

    def noted(step: int, rollouts: list[Rollout], rewards: list[float]) -> None:
        reports[step] = (rollouts, rewards)
        on_step(step)

    summary = train_in_processes(
        start,
        phase.ROWS,
        RewardSpec("tests.training.phase:LetterReward", {"work": str(folder / "work"), **reward}),
        phase.SETTINGS.model_copy(update={"save_steps": save_steps}),
        phase.SAMPLING,
        output=folder / "final",
        work=folder / "work",
        seed=phase.SEED,
        on_step=noted,
        resume=resume,
        hardware=hardware,
        training=TrainingConfig(),
        logs=folder / LOGS,
        keep_up=keep_up,
        stop=stop,
    )
    return summary, reports


def assert_steps_of_one(start: Path, one: Path, reports: Reports) -> None:
    """The same rollouts and rewards as in one process, which plays the phase in `one`."""
    phase.play(start, one, resume=False)
    alone = phase.steps(one)
    for step, (rollouts, rewards) in reports.items():
        expected, expected_rewards = alone[step]
        named = [(r.row_id, r.sample, r.text, r.truncated) for r in rollouts]
        assert named == [(r["row_id"], r["sample"], r["text"], r["truncated"]) for r in expected]
        assert rewards == expected_rewards
