"""Advantages that are whitened over a step's completions of one kind, one completion a prompt."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from diagevo.config.models import GRPOConfig
from diagevo.training.advantages import whitened
from diagevo.training.phase import Rollout
from diagevo.training.trainer import PhaseTrainer
from tests.training import phase
from tests.training.test_updates import Varied

SETTINGS = phase.SETTINGS.model_copy(
    update={"max_steps": 2, "batch_questions": 3, "group": 1, "advantage": "part"}
)


def test_a_completion_weighs_its_tokens() -> None:
    """By hand: mean (1 − 1/2 − 2) / 4 = −3/8; squares 1.375² + 0.125² + 2 · 0.625² = 2.6875, over 3."""
    deviation = math.sqrt(2.6875 / 3)
    expected = [1.375 / deviation, -0.125 / deviation, -0.625 / deviation]
    assert whitened([1, -0.5, -1], [1, 1, 2], ["a", "a", "a"]) == pytest.approx(expected)


def test_each_part_is_whitened_by_itself_and_one_alone_is_nothing() -> None:
    rewards, tokens, parts = [1.0, 5.0, -1.0, 3.0, 7.0], [2, 1, 2, 4, 1], ["a", "b", "a", "c", "b"]
    root = math.sqrt(4 / 3)  # ±1 on two tokens each: squares 4, over 3
    assert whitened(rewards, tokens, parts) == pytest.approx([1 / root, -(0.5**0.5), -1 / root, 0, 0.5**0.5])
    assert whitened([3.0], [1], ["a"]) == [0.0]
    assert whitened([], [], []) == []


def test_it_is_what_masked_whitening_over_the_tokens_gives() -> None:
    rewards, tokens = [0.875, -0.5, -1.0, 0.0, 0.5], [3, 1, 4, 2, 5]
    spread = torch.tensor(
        [r for r, n in zip(rewards, tokens, strict=True) for _ in range(n)], dtype=torch.float64
    )
    white = (spread - spread.mean()) * torch.rsqrt(spread.var() + 1e-8)
    starts = torch.tensor([0, *tokens]).cumsum(0)[:-1]
    assert whitened(rewards, tokens, ["x"] * 5) == pytest.approx(white[starts].tolist())


def test_one_completion_a_prompt_trains_on_what_its_part_gives(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recomputed from rewards and from the tokens that the loss sees; also in a last step of two rows."""
    used: list[dict[str, tuple[float, int]]] = []
    parts = {row.row_id: "ab"[i % 2] for i, row in enumerate(phase.ROWS)}
    leave_out = PhaseTrainer._leave_out_padding

    def noted(self: PhaseTrainer, batch: dict[str, Any]) -> None:
        leave_out(self, batch)
        names = [row["row_id"] for row in self._rows]
        tokens = batch["completion_mask"].sum(1).tolist()
        used.append(dict(zip(names, zip(batch["advantages"].tolist(), tokens, strict=True), strict=True)))

    monkeypatch.setattr(PhaseTrainer, "_leave_out_padding", noted)
    rewards: dict[int, dict[str, float]] = {}

    def on_step(step: int, rollouts: list[Rollout], values: list[float]) -> None:
        rewards[step] = {r.row_id: value for r, value in zip(rollouts, values, strict=True)}

    rows = tuple(replace(row, part=parts[row.row_id]) for row in phase.ROWS)
    played = phase.trained(
        tiny_model, tmp_path, reward=Varied(), settings=SETTINGS, on_step=on_step, rows=rows
    )
    assert [len(found) for found in rewards.values()] == [3, 2]
    for given, found in zip(rewards.values(), used, strict=True):
        assert given.keys() == found.keys()
        expected = whitened(list(given.values()), [found[n][1] for n in given], [parts[n] for n in given])
        assert [found[name][0] for name in given] == pytest.approx(expected, abs=1e-5)
    assert any(abs(advantage) > 0.5 for found in used for advantage, _ in found.values())
    before, after = (load_file(f / "model.safetensors") for f in (tiny_model, played.final))
    assert any(not torch.equal(after[name], before[name]) for name in before)


def test_a_group_of_one_has_nothing_to_compare_with() -> None:
    with pytest.raises(ValidationError, match="advantage: part"):
        GRPOConfig(max_steps=1, group=1)
    assert GRPOConfig(max_steps=1, group=1, advantage="part").group == 1
