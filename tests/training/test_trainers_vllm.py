"""The vLLM inside the trainer, lent to a frozen policy that votes between two draws of the policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.sampling.sampler import Prompt, Sampler, SamplingParams
from diagevo.sampling.trainers_vllm import TrainersVLLM
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.training.phase import Rollout
from tests.sampling.real_vllm import REAL_VLLM, make_far_adapter, make_wide_model
from tests.training import phase

pytestmark = [*REAL_VLLM, pytest.mark.usefixtures("an_engine_inside")]
PROMPTS: list[Prompt] = [[{"role": "user", "content": text}] for text in ("1+1?", "Why?", "So {x}.", "e")]
GREEDY = SamplingParams(temperature=0.0, max_new_tokens=8)


def greedy(sampler: Sampler) -> list[str]:
    return [group[0].text for group in sampler.sample(PROMPTS, n=1, params=GREEDY, seed=0)]


class Voting(phase.LetterReward):
    """Votes at each step, and notes what came."""

    def __init__(self, frozen: Path) -> None:
        super().__init__()
        self.sampler = TrainersVLLM(frozen)
        self.greedy: list[list[str]] = []
        self.drawn: list[list[str]] = []

    def borrow(self, engine: Any) -> None:
        self.sampler.engine = engine

    def measure(self, rollouts: Sequence[Rollout]) -> list[Any]:
        self.greedy.append(greedy(self.sampler))
        groups = self.sampler.sample(PROMPTS, n=3, params=SamplingParams(max_new_tokens=8), seed=7)
        assert [len(group) for group in groups] == [3, 3, 3, 3]
        self.drawn.append([completion.text for group in groups for completion in group])
        return super().measure(rollouts)


@pytest.mark.parametrize("tied", [True, False])
def test_the_frozen_policy_votes_at_each_step_and_the_rollouts_are_the_policys(
    tied: bool, tmp_path: Path
) -> None:
    """Steps that move the policy far. It votes as its own folder does, whatever the policy is by then."""
    start = make_wide_model(tmp_path / "start", tied=tied)
    frozen = make_wide_model(tmp_path / "frozen", seed=1, tied=tied)
    check_votes(start, frozen, tmp_path, TrainingConfig())


@pytest.mark.parametrize("began", [True, False], ids=["a base", "an adapter"])
def test_where_adapters_train_the_frozen_one_lies_beside_the_policys_on_one_base(
    began: bool, tmp_path: Path
) -> None:
    base = make_wide_model(tmp_path / "base")
    policy, other = tmp_path / "policy", tmp_path / "other"
    for seed, folder in enumerate((policy, other)):
        make_far_adapter(base, folder, seed)
    check_votes(policy, base if began else other, tmp_path, TrainingConfig(lora=4))


def check_votes(start: Path, frozen: Path, folder: Path, training: TrainingConfig) -> None:
    expected, others = (greedy(TransformersSampler(policy)) for policy in (frozen, start))
    assert all(a != b for a, b in zip(expected, others, strict=True))
    reward = Voting(frozen)
    summary = phase.trained(
        start,
        folder,
        reward=reward,
        settings=phase.SETTINGS.model_copy(update={"learning_rate": 0.05}),
        hardware=HardwareConfig(device="cpu", colocate_vllm=True),
        training=training,
    )
    assert reward.greedy == [expected] * 3
    assert reward.drawn == [reward.drawn[0]] * 3, "the seed decides"
    assert len(set(reward.drawn[0])) > len(PROMPTS), "samples of a prompt differ"
    assert [entry["sampling/tensors_apart"] for entry in summary.log] == [0, 0, 0]
    assert summary.measures.sampling_gap is not None
    assert summary.measures.sampling_gap < 0.0101  # of the part of the distribution that top-p leaves
