"""Adapters: one frozen base, an adapter that goes on from phase to phase, its copy as the reference."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.errors import ConfigError, MissingDependencyError
from diagevo.sampling.model_folder import adapter_scaling, base_of, check_model_folder
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


def read(final: Path, base: Path) -> torch.Tensor:
    """What PEFT itself reads of a finished phase."""
    model = AutoModelForCausalLM.from_pretrained(str(base), dtype="float32")
    return log_probabilities(PeftModel.from_pretrained(model, str(final)).eval())


def play(start: Path, folder: Path, training: TrainingConfig, *, stop_at: int = 0) -> Any:
    def on_step(step: int, rollouts: Any, rewards: Any) -> None:
        if step == stop_at:
            phase.wait_until_saved(folder / "work", step - 1)
            raise Stopped

    return phase.trained(start, folder, on_step=on_step, training=training)


@pytest.fixture(scope="module")
def played(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two phases with adapters, the second from the first's; it was also ended after step 2 and resumed."""
    folder = tmp_path_factory.mktemp("lora")
    seen: dict[str, Any] = {"trained": []}
    write = grpo._write_output

    def look(trainer: Any, phase: Phase, notes: dict[str, Any]) -> None:
        """The model as it is in training, with its reference, and with its base alone."""
        model = trainer.model.eval()
        seen["second model"] = trainer.ref_model
        seen["trained"].append(log_probabilities(model))
        model.set_adapter("ref")
        seen["reference"] = log_probabilities(model)
        model.set_adapter("default")
        with model.disable_adapter():
            seen["base"] = log_probabilities(model)
        seen["numbers"] = sum(weights.numel() for weights in model.parameters() if weights.requires_grad)
        write(trainer, phase, notes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo, "_write_output", look)
        seen["first"] = play(tiny_model, folder / "first", LORA)
        first = seen["first"].final
        seen["straight"] = play(first, folder / "straight", LORA)
    with pytest.raises(Stopped):
        play(first, folder / "broken", LORA, stop_at=3)
    checkpoint = find(folder / "broken/work").checkpoint
    assert checkpoint is not None
    [weights] = checkpoint.folder.rglob("*.safetensors")
    seen["weights"] = weights.relative_to(checkpoint.folder), weights.stat().st_size
    seen["resumed"] = play(first, folder / "broken", LORA)
    return seen


@pytest.mark.slow
def test_a_phase_goes_on_from_the_adapter_before_it_which_is_its_reference(
    played: dict[str, Any], tiny_model: Path
) -> None:
    start = AutoModelForCausalLM.from_pretrained(str(tiny_model), dtype="float32")
    first, second = played["trained"]
    assert played["second model"] is None
    assert torch.equal(played["base"], log_probabilities(start)), "nothing was merged into it"
    assert torch.equal(played["reference"], first)
    assert not torch.allclose(first, played["base"], atol=1e-3)
    assert not torch.allclose(second, first, atol=1e-3)
    for summary in (played["first"], played["straight"]):
        assert abs(summary.measures.first_kl) < 1e-9
        assert summary.log[-1]["kl"] > 1e-6, "later the policy is another"


def test_what_a_phase_leaves_is_its_adapter_and_answers_as_it_did_in_training(
    played: dict[str, Any], tiny_model: Path
) -> None:
    for summary, trained in zip((played["first"], played["straight"]), played["trained"], strict=True):
        final = summary.final
        assert sorted(file.name for file in final.iterdir()) == [
            "adapter_config.json",
            "adapter_model.safetensors",
            "manifest.json",
        ]
        base = base_of(final)
        assert base is not None
        assert base.samefile(tiny_model), "the same for ever"
        assert torch.equal(read(final, tiny_model), trained)
        sampler = TransformersSampler(final)
        assert torch.equal(log_probabilities(sampler._model), trained)
        [[drawn]] = sampler.sample(
            [phase.ROWS[0].prompt], n=1, params=SamplingParams(max_new_tokens=4), seed=0
        )
        assert drawn.tokens <= 4


def test_a_checkpoint_holds_the_adapter_alone_and_resumes_bit_for_bit(played: dict[str, Any]) -> None:
    name, size = played["weights"]
    assert name == Path(phase.SHARD), "not the reference too"
    assert 0 < size - 3 * 4 * played["numbers"] < 65_536, "and its moments, in four bytes, and their names"
    assert played["resumed"].resumed_from == 2
    straight, resumed = (played[name].final / "adapter_model.safetensors" for name in ("straight", "resumed"))
    assert straight.read_bytes() == resumed.read_bytes()


@pytest.mark.parametrize("rank", [None, 8])
def test_an_adapter_of_another_rank_is_refused(played: dict[str, Any], tmp_path: Path, rank: Any) -> None:
    with pytest.raises(
        ConfigError, match=f"training.lora is {rank}, and the policy in .* of rank 4"
    ) as error:
        play(played["first"].final, tmp_path, TrainingConfig(lora=rank))
    assert error.value.hint == "Set training.lora to 4, or start from whole weights."


def test_an_adapter_moves_with_a_base_beside_it_and_misses_one_that_is_gone(tmp_path: Path) -> None:
    start = make_tiny_model(tmp_path / "run/warm-start")
    final = play(start, tmp_path / "run/rounds/001", LORA).final
    said = json.loads((final / "adapter_config.json").read_text())
    assert said["base_model_name_or_path"] == "../../../warm-start"
    (tmp_path / "run").rename(tmp_path / "moved")
    moved = tmp_path / "moved/rounds/001/final"
    assert check_model_folder(moved) == moved
    TransformersSampler(moved)
    shutil.rmtree(tmp_path / "moved/warm-start")
    with pytest.raises(MissingDependencyError, match=r"an adapter to the model in .*warm-start, and there"):
        TransformersSampler(moved)
    (moved / "adapter_model.safetensors").unlink()
    with pytest.raises(MissingDependencyError, match="holds no weights of its adapter"):
        check_model_folder(moved)
    (moved / "adapter_config.json").write_text("{")
    with pytest.raises(MissingDependencyError, match=r"adapter_config.json cannot be read"):
        check_model_folder(moved)


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Twelve steps at 1e-5 in bfloat16 with a wider model: the policy, and it as it was trained."""
    folder, seen = tmp_path_factory.mktemp("twelve"), dict[str, Any]()
    write = grpo._write_output

    def look(trainer: Any, phase: Phase, notes: dict[str, Any]) -> None:
        model = trainer.model.eval()
        seen["held"] = {
            (name.partition("lora_")[1], str(weights.dtype)) for name, weights in model.named_parameters()
        }
        # The weights' rounding, without that of the arithmetic.
        model = trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False).float()
        seen["trained"] = log_probabilities(model)
        with model.disable_adapter():
            seen["base"] = log_probabilities(model)
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
        summary = phase.trained(
            start,
            folder,
            settings=settings,
            rows=rows,
            training=TrainingConfig(lora=8),
            hardware=HardwareConfig(device="cpu", precision="bfloat16"),
        )
    return summary.final, seen


def kl(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double().exp() * (a.double() - b.double())).sum(-1).mean())


def test_in_bfloat16_the_base_is_held_so_and_the_adapter_in_float32(twelve: tuple[Path, Any]) -> None:
    final, seen = twelve
    assert seen["held"] == {("", "torch.bfloat16"), ("lora_", "torch.float32")}
    saved = load_file(final / "adapter_model.safetensors")
    assert {weights.dtype for weights in saved.values()} == {torch.float32}


def test_a_policy_served_with_its_adapter_is_the_one_that_was_trained(twelve: tuple[Path, Any]) -> None:
    final, seen = twelve
    served: Any = TransformersSampler(final, dtype="bfloat16")._model
    merged: Any = TransformersSampler(final, dtype="bfloat16")._model
    merged = merged.merge_and_unload()
    apart, lost = (
        kl(log_probabilities(model.float()), seen["trained"])  # without the rounding of the arithmetic
        for model in (served, merged)
    )
    learned = kl(seen["base"], seen["trained"])
    assert apart < 1e-4
    assert apart < learned / 1000
    assert lost > learned / 2, "what merging loses is as much as what was learned"


@pytest.mark.parametrize("stabilized", [False, True])
def test_an_adapter_is_scaled_as_peft_scales_it(tiny_model: Path, tmp_path: Path, stabilized: bool) -> None:
    model = AutoModelForCausalLM.from_pretrained(str(tiny_model))
    given = LoraConfig(r=9, lora_alpha=6, target_modules=["q_proj"], use_rslora=stabilized)
    adapter: Any = get_peft_model(model, given)
    adapter.save_pretrained(str(tmp_path))
    scaled = {module.scaling["default"] for module in adapter.modules() if isinstance(module, LoraLayer)}
    assert scaled == {adapter_scaling(tmp_path)} == {2 if stabilized else 6 / 9}
