"""What a policy was trained towards follows from the log: advantages, from the rewards of single completions.

By hand as decisions.md and TRL have it: (r − mean) / (std + 1e-4) in a group, std of the sample.
"""

from contextlib import closing
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from diagevo.errors import StoppedSafely
from diagevo.loop.run import Until
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import open_history
from diagevo.training.trainer import PhaseTrainer
from tests.run.small import play, small_config
from tests.run.test_round import of


def test_the_advantages_of_every_completion_are_recomputed_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: dict[tuple[int, str], list[float]] = {}
    score = PhaseTrainer._generate_and_score_completions

    def noted(self: PhaseTrainer, rows: Any) -> Any:
        batch = score(self, rows)
        for row, advantage in zip(rows, batch["advantages"].tolist(), strict=True):
            used.setdefault((self.state.global_step + 1, row["row_id"]), []).append(advantage)
        return batch

    monkeypatch.setattr(PhaseTrainer, "_generate_and_score_completions", noted)
    config = small_config(round={"candidates": 4}, validation={"limit": 1, "samples": 1})
    with pytest.raises(StoppedSafely):
        play(tmp_path, config, until=Until(1, "challenger"))
    opened = open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a", root=tmp_path)
    with closing(opened) as history:
        steps, [done] = of(history, events.StepTrained), of(history, events.StageCompleted)
    assert [(step.stage, step.step) for step in steps] == [("challenger", 1), ("challenger", 2)]
    rewards = {(step.step, group.prompt): group.rewards for step in steps for group in step.groups}
    assert rewards.keys() == used.keys()
    assert len(rewards) == 2 * 4
    for group, values in rewards.items():
        expected = [(reward - fmean(values)) / (stdev(values) + 1e-4) for reward in values]
        assert used[group] == pytest.approx(expected, abs=1e-5)
    assert any(abs(value) > 0.5 for values in used.values() for value in values)
    every = [reward for values in rewards.values() for reward in values]
    assert done.reward == pytest.approx(fmean(every), abs=1e-4)
    for step in steps:
        assert step.loss is not None
        assert step.grad_norm is not None
        assert step.entropy is not None
        assert step.grad_norm > 0
        assert 0 < step.entropy < 5
    assert steps[0].kl == pytest.approx(0, abs=1e-9)
    assert steps[1].kl is not None
    assert steps[1].kl > 0
