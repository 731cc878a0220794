"""The shapes that gpu.py plays, models of them with weights drawn at random, and their phase."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagevo.config.loading import of_profile
from diagevo.config.models import Config, GRPOConfig, HardwareConfig, SamplingConfig
from diagevo.planning.footprint import gpu_memory_plan
from diagevo.planning.shapes import shape_of
from diagevo.training.phase import Phase, RewardSpec, TrainingRow
from tests.sampling.tiny_model import VOCABULARY, make_tiny_tokenizer

STEPS = 3


@dataclass(frozen=True)
class Shape:
    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    tied: bool
    vocabulary: int = 151_936
    step_rows: int = 64  # completions of a GRPO step
    step_prompt: int = 512
    step_tokens: int = 1024  # of a completion in it
    micro_batch: int = 4


SMALLEST = Shape("Qwen3-0.6B", 1024, 3072, 28, 16, True)
LARGE = Shape("Qwen3-8B", 4096, 12288, 36, 32, False)
TINY = Shape("tiny", 64, 128, 2, 8, False, 128, 16, 256, 12, 2)


def make_policy(shape: Shape, folder: Path, *, seed: int = 0, device: str = "cpu") -> Path:
    """Its folder, with weights that make some tokens likelier than others, and a text for each token."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    standard = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            model = Qwen3ForCausalLM(Qwen3Config(**config_of(shape)))
    finally:
        torch.set_default_dtype(standard)
    model.save_pretrained(folder)
    make_tiny_tokenizer().save_pretrained(folder)
    file = folder / "tokenizer.json"
    saved = json.loads(file.read_text())
    saved["model"]["vocab"] |= {f"<{i}>": i for i in range(len(VOCABULARY), shape.vocabulary)}
    file.write_text(json.dumps(saved))
    return folder


def config_of(shape: Shape) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": 4096,
        "initializer_range": 0.1,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "bos_token_id": None,
    }


def run_of(shape: Shape, **hardware: Any) -> Config:
    """The run of which a phase is played."""
    grpo = GRPOConfig(
        max_steps=STEPS, batch_questions=shape.step_rows // 8, group=8, micro_batch=shape.micro_batch
    )
    sampling = SamplingConfig(max_prompt_tokens=shape.step_prompt, max_new_tokens=shape.step_tokens)
    changes = {"solver_grpo": grpo, "sampling": sampling, "hardware": HardwareConfig(**hardware)}
    return of_profile("embedded").config.model_copy(update=changes)


def phase_of(config: Config, start: Path, folder: Path, reward: str, arguments: Mapping[str, Any]) -> Phase:
    questions = STEPS * config.solver_grpo.batch_questions
    return Phase(
        start=start,
        rows=tuple(
            TrainingRow(f"q{i}", [{"role": "user", "content": f"What is {i:02}?"}]) for i in range(questions)
        ),
        reward=RewardSpec(reward, arguments),
        settings=config.solver_grpo.model_copy(update={"save_steps": 1}),
        sampling=config.sampling,
        hardware=config.hardware,
        training=config.training,
        output=folder / "final",
        work=folder / "work",
        seed=0,
    )


def planned(config: Config, shape: Shape, card: float = 0.0) -> float:
    """Bytes that `train --plan` reckons for the phase at its fullest, without CUDA's own."""
    counted = shape_of({"model_type": "qwen3"} | config_of(shape))
    assert counted is not None
    solver = [load for load in gpu_memory_plan(config, counted, counted) if load.stage.startswith("solver")]
    return max(load.peak(card) - load.parts["process"] for load in solver)
