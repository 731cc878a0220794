"""Several updates of what one draw gave, against TRL's own trainer with the same completions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from safetensors.torch import load_file
from trl.trainer import grpo_trainer
from trl.trainer.grpo_trainer import GRPOTrainer

from diagevo.errors import StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling.model_folder import load_tokenizer
from diagevo.training.grpo import trl_settings
from diagevo.training.plan import plan_phase
from diagevo.training.trainer import PhaseTrainer
from tests.training import phase

CHANGES = {
    "max_steps": 1,
    "updates": 3,
    "batch_questions": 3,
    "group": 4,
    "loss_type": "dr_grpo",
    "beta": 0.5,
}
SETTINGS = phase.SETTINGS.model_copy(update=CHANGES)


class Varied(phase.LetterReward):
    def measure(self, rollouts: Any) -> list[Any]:
        return [float(sum(map(ord, rollout.text)) % 7) for rollout in rollouts]


def test_three_updates_of_a_draw_are_those_of_trl(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    draw = PhaseTrainer._generate_single_turn

    def noted(self: Any, *given: Any, **named: Any) -> Any:
        drawn.append(draw(self, *given, **named))
        return drawn[-1]

    with monkeypatch.context() as patch:
        patch.setattr(PhaseTrainer, "_generate_single_turn", noted)
        phase.trained(tiny_model, tmp_path / "ours", reward=Varied(), settings=SETTINGS)
    [(completions, logps)] = drawn

    given = phase.of(tiny_model, tmp_path / "trl", settings=SETTINGS)
    plan = plan_phase(given.rows, batch_questions=3, max_steps=1, group=4, ranks=1, seed=given.seed)
    args = replace(
        trl_settings(plan, given),
        per_device_train_batch_size=4,
        steps_per_generation=3,
        generation_batch_size=None,
        num_iterations=1,
        max_steps=3,
        save_strategy="no",
        shuffle_dataset=False,
    )
    monkeypatch.setattr(grpo_trainer, "shuffle_sequence_dict", lambda batch: batch)
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", lambda *_, **__: (completions, logps))

    def reward(*, completions: Any, **_: Any) -> list[float | None]:
        values = [float(sum(map(ord, turns[0]["content"])) % 7) for turns in completions]
        return [value - sum(values) / len(values) for value in values]

    trainer: Any = GRPOTrainer(
        model=str(tiny_model),
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_list([{"prompt": row.prompt} for row in plan.batches[0]]),
        processing_class=load_tokenizer(tiny_model),
    )
    trainer.train()
    assert trainer.state.global_step == 3
    ours, start = (load_file(f / "model.safetensors") for f in (tmp_path / "ours/final", tiny_model))
    of_trl = trainer.model.state_dict()
    assert max(float((ours[name] - of_trl[name]).abs().max()) for name in ours) < 2e-5, "rounding, by Adam"
    assert max(float((ours[name] - start[name]).abs().max()) for name in ours) > 2e-3, "three of 1e-3"


def test_a_stop_after_the_first_update_saves_nothing_of_the_step(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SETTINGS.model_copy(update={"max_steps": 2, "batch_questions": 2, "save_steps": 9})
    stop, update, updates = StopFlag(), PhaseTrainer._update, list[int]()

    def stopping(self: Any, model: Any) -> None:
        update(self, model)
        updates.append(self.state.global_step)
        if updates == [0, 0, 1]:
            stop.set()
            stop.set()

    with monkeypatch.context() as patch:
        patch.setattr(PhaseTrainer, "_update", stopping)
        with pytest.raises(StoppedSafely):
            phase.trained(tiny_model, tmp_path, reward=Varied(), settings=settings, stop=stop)
    assert phase.last_saved(tmp_path / "work") == 0, "what lies between two steps is no state to go on from"


def test_the_first_kl_of_several_updates_is_that_of_the_first(tiny_model: Path, tmp_path: Path) -> None:
    """Later ones have moved the policy, and its distance from what drew the rollouts is no fault."""
    summary = phase.trained(tiny_model, tmp_path, reward=Varied(), settings=SETTINGS)
    [step] = summary.log
    assert summary.measures.first_kl is not None
    assert abs(summary.measures.first_kl) < 1e-9, "policy and reference have the same weights"
    assert step["kl"] > 1e-4, "over all three"
    assert summary.measures.sampling_gap is not None
    assert summary.measures.sampling_gap < 1e-5, "of the policy that drew"
