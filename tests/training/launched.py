"""The small phase in ranks of their own, and what it must equal: the same phase in one process."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import HardwareConfig
from diagevo.progress import StopFlag
from diagevo.training.phase import OnStep, Phase, RewardSpec, Rollout, TrainingSummary
from diagevo.training.workers import Workers, _Group
from tests.training import phase

Reports = dict[int, tuple[list[Rollout], list[float]]]
LOGS = "final-logs"


def launch(
    start: Path,
    folder: Path,
    hardware: HardwareConfig,
    *,
    on_step: Callable[[int], None] = lambda step: None,
    meanwhile: Callable[[_Group], None] = lambda ranks: None,
    stop: StopFlag | None = None,
    save_steps: int = 1,
    **reward: Any,
) -> tuple[TrainingSummary, Reports]:
    """Play it in `folder`; by step, the rollouts and rewards that the launcher was told. `meanwhile` is
    called as often as it looks at the ranks."""
    reports: Reports = {}

    def noted(step: int, rollouts: list[Rollout], rewards: list[float]) -> None:
        reports[step] = (rollouts, rewards)
        on_step(step)

    given = phase.of(
        start,
        folder,
        reward=RewardSpec("tests.training.phase:LetterReward", {"work": str(folder / "work"), **reward}),
        settings=phase.SETTINGS.model_copy(update={"save_steps": save_steps}),
        hardware=hardware,
    )
    listen = _Group._listen

    def listen_and_more(group: _Group, seconds: float) -> None:
        listen(group, seconds)
        meanwhile(group)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_Group, "_listen", listen_and_more)
        summary = play_alone(given, noted, StopFlag() if stop is None else stop)
    return summary, reports


def play_alone(
    given: Phase, on_step: OnStep = lambda *_: None, stop: StopFlag | None = None
) -> TrainingSummary:
    """By ranks of its own, which log beside it."""
    logs = given.output.with_name(LOGS)
    workers = Workers(given.start, given.sampling, given.training, logs=logs)
    with closing(workers):
        return workers.play(given, on_step, StopFlag() if stop is None else stop)


def assert_steps_of_one(start: Path, one: Path, reports: Reports) -> TrainingSummary:
    """The same rollouts and rewards as in one process, which plays the phase in `one`."""
    summary = phase.play(start, one)
    alone = phase.steps(one)
    for step, (rollouts, rewards) in reports.items():
        expected, expected_rewards = alone[step]
        named = [(r.row_id, r.sample, r.text, r.truncated) for r in rollouts]
        assert named == [(r["row_id"], r["sample"], r["text"], r["truncated"]) for r in expected]
        assert rewards == expected_rewards
    return summary
