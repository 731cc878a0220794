"""The shapes that bench_gpu.py measures, and models of them with weights drawn at random."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shape:
    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    tied: bool
    vocabulary: int = 151_936
    rows: int = 256  # sampled at once
    prompt: int = 512
    new: int = 1024
    micro_batch: int = 4
    length: int = 6144  # of a row in an update
    step_rows: int = 64  # completions of a GRPO step
    step_prompt: int = 16
    step_tokens: int = 1024  # of a completion in it


SHAPES = (
    Shape("Qwen3-0.6B", 1024, 3072, 28, 16, True),
    Shape("Qwen3-4B", 2560, 9728, 36, 32, True),
    Shape("Qwen3-8B", 4096, 12288, 36, 32, False),
)
TINY = Shape("tiny", 64, 128, 2, 8, False, 128, 16, 8, 8, 2, 32, 16, 16, 8)


def random_model(shape: Shape, device: str) -> Any:
    import torch
    from transformers import Qwen3ForCausalLM

    standard = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):
            return Qwen3ForCausalLM(config_of(shape))
    finally:
        torch.set_default_dtype(standard)


def config_of(shape: Shape) -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=4096,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
    )
