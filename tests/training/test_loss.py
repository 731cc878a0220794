"""The loss of a batch whose ratios are not 1, against values worked out by hand: clips, KL, normalisation."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig
from diagevo.progress import StopFlag
from diagevo.training import grpo
from diagevo.training.plan import plan_phase
from diagevo.training.saving import Saving
from tests.training import phase

PROMPT = [7, 8]
COMPLETIONS = [[9, 10, 11], [12, 13]]
RATIOS = [[1.5, 0.5, 1.1], [0.5, 5.0]]
"""New probability over old, token by token. The paper clips at 0.8 and 1.3; beyond 3 a ratio counts as 3."""
ADVANTAGES = [2.0, -1.0]
POLICY = (2 * 1.3 + 2 * 0.5 + 2 * 1.1) + (-0.8 - 3.0)
"""min(ratio · A, clipped · A): 1.5 is cut to 1.3; 0.5 stays where A > 0 and becomes 0.8 where A < 0."""
DISTANCE = 2 - math.log(2) - 1
"""A token's KL estimate where the reference finds it twice as likely: exp(d) − d − 1 with d = ln 2."""


@pytest.fixture
def trainer(tiny_model: Path, tmp_path: Path) -> Any:
    settings = GRPOConfig(max_steps=1, batch_questions=1, group=2, micro_batch=2)
    plan = plan_phase(phase.ROWS, batch_questions=1, max_steps=1, group=2, ranks=1, micro_batch=2, seed=0)
    trainer = grpo._build_trainer(
        phase.of(
            tiny_model,
            tmp_path,
            settings=settings,
            sampling=SamplingConfig(max_prompt_tokens=32),
            hardware=HardwareConfig(device="cpu"),
        ),
        plan,
        reward=phase.LetterReward(),
        on_step=lambda step, rollouts, rewards: None,
        saving=Saving(tmp_path, {}),
        check=lambda steps: None,
        stop=StopFlag(),
        saved=0,
    )
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def likelihood(model: Any, completion: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *completion]])).logits[0, len(PROMPT) - 1 : -1]
    return logits.log_softmax(-1)[range(len(completion)), completion]


def batch(trainer: Any) -> dict[str, torch.Tensor]:
    """Two completions, the second padded by one token that must not count."""
    new = [likelihood(trainer.model, completion) for completion in COMPLETIONS]
    old = [found - torch.tensor(ratios).log() for found, ratios in zip(new, RATIOS, strict=True)]
    padded = torch.nn.utils.rnn.pad_sequence
    return {
        "prompt_ids": torch.tensor([PROMPT] * 2),
        "prompt_mask": torch.ones(2, 2, dtype=torch.long),
        "completion_ids": torch.tensor([COMPLETIONS[0], [*COMPLETIONS[1], 0]]),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
        "advantages": torch.tensor(ADVANTAGES),
        "old_per_token_logps": padded(old, batch_first=True),
        "ref_per_token_logps": padded([found + math.log(2) for found in new], batch_first=True),
        "num_items_in_batch": torch.tensor(5),
    }


def test_the_loss_of_five_tokens_is_the_one_worked_out_by_hand(trainer: Any) -> None:
    expected = -(POLICY - 0.01 * 5 * DISTANCE) / 5
    assert expected == pytest.approx(-0.396931, abs=1e-6)
    assert trainer.compute_loss(trainer.model, batch(trainer)).item() == pytest.approx(expected, abs=1e-5)


def test_every_token_of_a_step_weighs_the_same_whatever_its_completion_and_micro_batch(trainer: Any) -> None:
    whole = trainer.compute_loss(trainer.model, batch(trainer)).item()
    rows = [{k: v[i : i + 1] if v.ndim else v for k, v in batch(trainer).items()} for i in range(2)]
    parts = [trainer.compute_loss(trainer.model, row).item() for row in rows]
    assert sum(parts) == pytest.approx(whole, abs=1e-5)
    assert parts[0] == pytest.approx(-(2 * 1.3 + 2 * 0.5 + 2 * 1.1 - 0.01 * 3 * DISTANCE) / 5, abs=1e-5)
