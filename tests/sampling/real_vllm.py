"""What tests marked `vllm` share. They run in an environment that holds vLLM: `make test-vllm`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.sampling.tiny_model import make_tiny_model

REAL_VLLM = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="no vLLM in this environment: make test-vllm"),
]
# On the CPU: float32, or vLLM casts to bfloat16; eager, or a start takes minutes; whole prompts, since a
# prompt in chunks turns its generator back, which torch's of the CPU cannot ("does not use offset").
CPU_OPTIONS = ("--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill")


def make_wide_model(folder: Path, **changes: Any) -> Path:
    """The tiny model with heads of width 32, the least that vLLM's attention takes on the CPU."""
    return make_tiny_model(folder, width=128, **changes)


def make_far_adapter(base: Path, folder: Path, seed: int = 0) -> Any:
    """A policy of LoRA that answers otherwise than its base; the model that it is."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(str(base), dtype="float32")
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted: Any = get_peft_model(model, config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.2)
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    adapted.save_pretrained(str(folder))
    return adapted
