"""A phase notices by itself that it trains on wrong numbers: each fault is really made. Checksums by hand."""

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from diagevo.config.models import SamplingConfig, TrainingConfig
from diagevo.errors import WrongTrainingError
from diagevo.sampling.engine_weights import checksum
from diagevo.training import trainer
from diagevo.training.checkpoints import find
from diagevo.training.measures import (
    COMPLETIONS,
    CUT_OFF,
    FIRST_KL,
    HIGHEST,
    LOWEST,
    TENSORS_APART,
    PhaseMeasures,
    measured,
    warnings,
)
from diagevo.training.phase import Rollout
from tests.sampling.tiny_model import make_tiny_model
from tests.training import phase


class Unmoved:
    """A reward that says the same of every completion."""

    def measure(self, rollouts: Sequence[Rollout]) -> list[Any]:
        return [None for _ in rollouts]

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[Any]) -> list[float]:
        return [-1.0 for _ in rollouts]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with other weights."""
    return make_tiny_model(tmp_path_factory.mktemp("other") / "model", seed=1)


def ended(play: Callable[[], Any], folder: Path) -> PhaseMeasures:
    """What a phase measured that ended itself; nothing that it did is kept."""
    with pytest.raises(WrongTrainingError) as caught:
        play()
    assert not (folder / "final").exists()
    assert isinstance(caught.value.measures, PhaseMeasures)
    again = pickle.loads(pickle.dumps(caught.value))  # as a rank sends it to its launcher
    assert (again.measures, again.hint) == (caught.value.measures, caught.value.hint)
    return caught.value.measures


def test_a_reference_with_other_weights_ends_the_phase_at_its_first_step(
    tiny_model: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As FSDP left it where rank 0 alone read the weights."""
    loaded: list[str] = []

    def load(path: str, **options: Any) -> Any:
        loaded.append(path)
        folder = path if len(loaded) == 1 else str(other)
        return AutoModelForCausalLM.from_pretrained(folder, dtype="float32")

    monkeypatch.setattr("trl.trainer.grpo_trainer.create_model_from_path", load)
    found = ended(lambda: phase.trained(tiny_model, tmp_path), tmp_path)
    assert len(loaded) == 2, "the policy, then the reference"
    assert (found.steps, found.findings) == (1, ("wrong_reference",))
    assert found.first_kl is not None
    assert found.first_kl > 0.1
    assert find(tmp_path / "work").step == 0


def test_a_sampler_with_other_weights_ends_the_phase_at_the_step_where_it_has_them(
    tiny_model: Path, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a vLLM that did not take the weights of the step before."""
    stale = AutoModelForCausalLM.from_pretrained(str(other), dtype="float32")
    right, calls = trainer.draw, [0]

    def draw(model: Any, *rest: Any) -> Any:
        calls[0] += 1
        return right(model if calls[0] == 1 else stale, *rest)

    monkeypatch.setattr(trainer, "draw", draw)
    found = ended(lambda: phase.trained(tiny_model, tmp_path), tmp_path)
    assert (found.steps, found.findings) == (2, ("wrong_sampler",))
    assert found.sampling_gap is not None
    assert found.sampling_gap > 0.5
    assert find(tmp_path / "work").step == 1


def test_a_constant_reward_and_completions_that_are_cut_off_are_found_and_told(
    tiny_model: Path, tmp_path: Path
) -> None:
    short = SamplingConfig(max_new_tokens=2, max_prompt_tokens=32)
    found = phase.trained(tiny_model, tmp_path, reward=Unmoved(), sampling=short).measures
    assert found.findings == ("constant_reward", "cut_off")
    assert (found.reward_lowest, found.reward_highest, found.completions) == (-1.0, -1.0, 15)
    assert found.cut_off == 15
    assert warnings(found) == [
        "the reward was -1 for all 15 completions: nothing could be learned from it",
        "15 of 15 completions were cut off at sampling.max_new_tokens: raise it, or find out why "
        "they do not end",
    ]


def step(**changes: float | None) -> dict[str, float | None]:
    return {FIRST_KL: 0.0, LOWEST: -1.0, HIGHEST: 1.0, COMPLETIONS: 20.0, CUT_OFF: 0.0} | changes


def findings(*log: dict[str, float | None]) -> tuple[str, ...]:
    return measured(log, TrainingConfig(), reference=True, attention="sdpa").findings


def test_the_bounds_are_met_by_what_is_equal_to_them_and_never_by_what_is_no_number() -> None:
    gap = "sampling/sampling_logp_difference/mean"
    assert findings(step(**{FIRST_KL: 0.01}), step(**{FIRST_KL: 5.0})) == (), "later the policy has moved"
    assert findings(step(**{FIRST_KL: 0.011})) == ("wrong_reference",)
    assert findings(step(**{FIRST_KL: None})) == ("wrong_reference",), "TRL logs None for what is no number"
    assert findings(step(**{gap: 0.5})) == ()
    assert findings(step(**{gap: 0.1}), step(**{gap: 0.51}), step(**{gap: 0.1})) == ("wrong_sampler",)
    assert findings(step(**{gap: float("nan")})) == ("wrong_sampler",)
    assert findings(step(**{CUT_OFF: 18.0}), step(**{CUT_OFF: 20.0})) == ("cut_off",), "38 of 40"
    assert findings(step(**{CUT_OFF: 17.0}), step(**{CUT_OFF: 20.0})) == ()
    moved = step(**{LOWEST: 0.0, HIGHEST: 0.0}), step(**{LOWEST: 1.0, HIGHEST: 1.0})
    assert findings(moved[0]) == ("constant_reward",)
    assert findings(*moved) == (), "constant in each step, not over the phase"


def test_a_checksum_adds_up_the_bits_so_that_parts_and_padding_do_not_matter() -> None:
    one = torch.tensor([1.0, 2.0, -0.0], dtype=torch.bfloat16)
    assert checksum(one) == 0x3F80 + 0x4000 - 0x8000
    assert checksum(torch.ones(3)) == 3 * 0x3F800000
    parts = torch.randn(4, 8), torch.randn(2, 8)
    assert checksum(torch.cat([*parts, torch.zeros(3, 8)])) == sum(map(checksum, parts))
    assert checksum(parts[0].T) == checksum(parts[0])


def test_the_least_change_of_one_weight_changes_it() -> None:
    weights = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    moved = weights.clone()
    moved[17] = torch.nextafter(moved[17], torch.tensor(torch.inf, dtype=torch.bfloat16))
    assert abs(checksum(moved) - checksum(weights)) == 1


def test_one_tensor_that_differs_in_one_step_is_found() -> None:
    step = {LOWEST: 0.0, HIGHEST: 1.0, COMPLETIONS: 8.0, CUT_OFF: 0.0}

    def findings(*apart: float) -> tuple[str, ...]:
        log = [step | {TENSORS_APART: value} for value in apart]
        return measured(log, TrainingConfig(), reference=False, attention="sdpa").findings

    assert findings(0.0, 0.0) == ()
    assert findings(0.0, 1.0) == ("stale_sampler",)
