"""Adapters: one copy of the model, the reference is it with the adapter off, and whole weights at the end."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from diagevo.config.models import TrainingConfig
from diagevo.errors import ConfigError
from diagevo.sampling.sampler import SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.training import grpo
from diagevo.training.checkpoints import find
from tests.training import phase

LORA = TrainingConfig(lora=4)
IDS = torch.tensor([[7, 8, 9, 10, 11, 12]])


class Stopped(Exception):
    """Between two steps."""


def log_probabilities(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits.log_softmax(-1)


def play(start: Path, folder: Path, training: TrainingConfig, *, stop_at: int = 0) -> Any:
    def on_step(step: int, rollouts: Any, rewards: Any) -> None:
        if step == stop_at:
            phase.wait_until_saved(folder / "work", step - 1)
            raise Stopped

    return phase.trained(start, folder, on_step=on_step, training=training)


@pytest.fixture(scope="module")
def played(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A phase with adapters, and another that was ended after step 2 and resumed."""
    folder, seen = tmp_path_factory.mktemp("lora"), {}
    write = grpo._write_output

    def look(trainer: Any, output: Path, notes: dict[str, Any]) -> None:
        """The model before its adapter is merged, and with it off."""
        trainer.model.eval()
        seen["reference"] = trainer.ref_model
        seen["adapter"] = log_probabilities(trainer.model)
        with trainer.model.disable_adapter():
            seen["off"] = log_probabilities(trainer.model)
        seen["trained"] = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
        write(trainer, output, notes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo, "_write_output", look)
        seen["straight"] = play(tiny_model, folder / "straight", LORA)
    with pytest.raises(Stopped):
        play(tiny_model, folder / "broken", LORA, stop_at=3)
    with pytest.raises(ConfigError, match="another lora than now: 4, not None"):
        play(tiny_model, folder / "broken", TrainingConfig())
    checkpoint = find(folder / "broken/work").checkpoint
    assert checkpoint is not None
    [weights] = checkpoint.folder.glob("*.safetensors")
    seen["weights"] = weights.name, weights.stat().st_size
    seen["resumed"] = play(tiny_model, folder / "broken", LORA)
    return seen


@pytest.mark.slow
def test_the_reference_is_the_start_with_the_adapter_off_and_no_second_model(
    played: dict[str, Any], tiny_model: Path
) -> None:
    start = AutoModelForCausalLM.from_pretrained(str(tiny_model), dtype="float32")
    assert played["reference"] is None
    assert torch.equal(played["off"], log_probabilities(start))
    assert abs(played["straight"].measures.first_kl) < 1e-9
    assert played["straight"].log[-1]["kl"] > 1e-6, "later the policy is another"


def test_the_phase_ends_in_whole_weights_with_the_log_probabilities_of_the_adapter(
    played: dict[str, Any],
) -> None:
    final = played["straight"].final
    merged = AutoModelForCausalLM.from_pretrained(str(final), dtype="float32")
    assert torch.allclose(log_probabilities(merged), played["adapter"], atol=1e-5)
    assert not torch.allclose(played["adapter"], played["off"], atol=1e-3), "the adapter has learned"
    assert not list(final.glob("adapter*"))
    sampler = TransformersSampler(final)
    [[drawn]] = sampler.sample([phase.ROWS[0].prompt], n=1, params=SamplingParams(max_new_tokens=4), seed=0)
    assert drawn.tokens <= 4


def test_a_checkpoint_holds_the_adapter_alone_and_resumes_bit_for_bit(played: dict[str, Any]) -> None:
    name, size = played["weights"]
    assert name == "adapter_model.safetensors"
    assert size < 4 * played["trained"] + 8192, "numbers in four bytes, and their names"
    assert played["resumed"].resumed_from == 2
    straight, resumed = (played[name].final / "model.safetensors" for name in ("straight", "resumed"))
    assert straight.read_bytes() == resumed.read_bytes()
