"""Adapters: one copy of the model, the reference is it with the adapter off, and whole weights at the end."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from diagevo.config.models import TrainingConfig
from diagevo.errors import ConfigError
from diagevo.sampling.model_folder import ADAPTER, adapter_of
from diagevo.sampling.sampler import SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.training import grpo
from diagevo.training.checkpoints import find
from diagevo.training.phase import Phase, TrainingRow
from tests.sampling.tiny_model import make_tiny_model
from tests.training import phase

LORA = TrainingConfig(lora=4)
IDS = torch.tensor([[7, 8, 9, 10, 11, 12]])


class Stopped(Exception):
    """Between two steps."""


def log_probabilities(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits.float().log_softmax(-1)


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

    def look(trainer: Any, phase: Phase, notes: dict[str, Any]) -> None:
        """The model before its adapter is merged, and with it off."""
        trainer.model.eval()
        seen["reference"] = trainer.ref_model
        seen["adapter"] = log_probabilities(trainer.model)
        with trainer.model.disable_adapter():
            seen["off"] = log_probabilities(trainer.model)
        seen["trained"] = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
        write(trainer, phase, notes)

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


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Twelve steps at 1e-5 with a wider model: the policy, and it as it was trained."""
    folder, seen = tmp_path_factory.mktemp("twelve"), list[Any]()
    write = grpo._write_output

    def look(trainer: Any, phase: Phase, notes: dict[str, Any]) -> None:
        trainer.model.eval()
        seen.append(log_probabilities(trainer.model))
        with trainer.model.disable_adapter():
            seen.append(log_probabilities(trainer.model))
        write(trainer, phase, notes)

    settings = phase.SETTINGS.model_copy(
        update={"learning_rate": 1e-5, "batch_questions": 1, "max_steps": 12, "save_steps": 12}
    )
    rows = tuple(TrainingRow(f"q{i}", [{"role": "user", "content": f"{i}+{i}?"}]) for i in range(12))
    start = make_tiny_model(folder / "start", width=256)
    base = AutoModelForCausalLM.from_pretrained(str(start), dtype="bfloat16")  # as what is on the hub
    base.save_pretrained(str(start))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo, "_write_output", look)
        training = TrainingConfig(lora=8)
        summary = phase.trained(start, folder, settings=settings, rows=rows, training=training)
    return summary.final, seen


def kl(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double().exp() * (a.double() - b.double())).sum(-1).mean())


def test_a_policy_served_with_its_adapter_is_the_one_that_was_trained(twelve: tuple[Path, Any]) -> None:
    final, (trained, base) = twelve
    assert sorted(file.name for file in (final / ADAPTER).iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    models: tuple[Any, ...] = (
        TransformersSampler(final, dtype="bfloat16")._model,
        AutoModelForCausalLM.from_pretrained(str(final), dtype="bfloat16", use_safetensors=True),
    )
    served, merged = (
        kl(log_probabilities(model.float()), trained)  # the weights' rounding, without that of the arithmetic
        for model in models
    )
    learned = kl(base, trained)
    assert served < 1e-4
    assert served < learned / 1000
    assert merged > learned / 2, "what merging loses is as much as what was learned"


def test_where_the_weights_that_an_adapter_belongs_to_are_gone_the_merged_ones_are_served(
    twelve: tuple[Path, Any], tmp_path: Path
) -> None:
    final, _ = twelve
    assert adapter_of(final) == (final.parent / "start", final / ADAPTER)
    moved = tmp_path / "moved"
    shutil.copytree(final, moved)
    said = json.loads((moved / ADAPTER / "adapter_config.json").read_text())
    said["base_model_name_or_path"] = str(tmp_path / "gone")
    (moved / ADAPTER / "adapter_config.json").write_text(json.dumps(said))
    assert adapter_of(moved) is None
    assert adapter_of(final.parent / "start") is None
    TransformersSampler(moved, dtype="bfloat16")
