"""The vLLM of a process, lent to a frozen policy that votes between two draws of the policy."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.errors import WrongTrainingError
from diagevo.sampling.engine import Engine, EngineSampler
from diagevo.sampling.sampler import Prompt, Sampler, SamplingParams
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

    def __init__(self, frozen: Path, engine: Engine) -> None:
        super().__init__()
        self.sampler = EngineSampler(frozen, engine)
        self.greedy: list[list[str]] = []
        self.drawn: list[list[str]] = []

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
    given: Any = {"hardware": HardwareConfig(device="cpu", colocate_vllm=True), "training": training}
    engine = phase.engine_of(phase.of(start, folder, **given))
    reward = Voting(frozen, engine)
    far = phase.SETTINGS.model_copy(update={"learning_rate": 0.05})
    summary = phase.trained(start, folder, reward=reward, settings=far, engine=engine, **given)
    assert reward.greedy == [expected] * 3
    assert reward.drawn == [reward.drawn[0]] * 3, "the seed decides"
    assert len(set(reward.drawn[0])) > len(PROMPTS), "samples of a prompt differ"
    assert [entry["sampling/tensors_apart"] for entry in summary.log] == [0, 0, 0]
    assert summary.measures.sampling_gap is not None
    assert summary.measures.sampling_gap < 0.0101  # of the part of the distribution that top-p leaves


@pytest.mark.parametrize("lora", [None, 4], ids=["weights", "adapters"])
def test_one_engine_is_enough_for_a_run(
    lora: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen policies before, between and after two phases, each as by transformers from its own folder."""
    vllm, started = import_module("vllm"), list[Any]()
    start_llm = vllm.LLM
    monkeypatch.setattr(vllm, "LLM", lambda **given: started.append(given) or start_llm(**given))
    start = make_wide_model(tmp_path / "start")
    far: Any = {
        "settings": phase.SETTINGS.model_copy(update={"learning_rate": 0.05}),
        "hardware": HardwareConfig(device="cpu", colocate_vllm=True),
        "training": TrainingConfig(lora=lora),
    }
    engine = phase.engine_of(phase.of(start, tmp_path, **far))
    policies, answers = [start], []
    for name in ("one", "two"):
        answers.append(greedy(EngineSampler(policies[-1], engine)))
        summary = phase.trained(policies[-1], tmp_path / name, engine=engine, **far)
        assert [entry["sampling/tensors_apart"] for entry in summary.log] == [0, 0, 0]
        policies.append(summary.final)
    answers += [greedy(EngineSampler(policy, engine)) for policy in (policies[2], policies[1])]
    expected = [greedy(TransformersSampler(policy)) for policy in (*policies, policies[1])]
    assert answers == expected
    assert len({tuple(each) for each in answers}) == 3, "the phases moved it far"
    assert len(started) == 1


def test_weights_that_do_not_arrive_are_noticed_before_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, other = make_wide_model(tmp_path / "start"), make_wide_model(tmp_path / "other", seed=1)
    hardware = HardwareConfig(device="cpu", colocate_vllm=True)
    engine = phase.engine_of(phase.of(start, tmp_path, hardware=hardware))
    assert greedy(EngineSampler(start, engine))
    model = import_module("vllm.model_executor.models.qwen3").Qwen3ForCausalLM
    monkeypatch.setattr(model, "load_weights", lambda self, weights: set(weights) and None)
    with pytest.raises(WrongTrainingError, match=r"vLLM's weights differ from .*other in"):
        greedy(EngineSampler(other, engine))
    monkeypatch.undo()
    assert greedy(EngineSampler(other, engine)) == greedy(TransformersSampler(other))
