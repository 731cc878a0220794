"""What tests marked `vllm` share. They run in an environment that holds vLLM: `make test-vllm`."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import HardwareConfig, SamplingConfig
from diagevo.sampling.engine import Engine
from diagevo.sampling.supervised import free_port
from tests.sampling.tiny_model import make_tiny_model

REAL_VLLM = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="no vLLM in this environment: make test-vllm"),
]

_BLOCKS = 64  # of 128 tokens, in place of a gigabyte of cache


def engine_of(model: Path, longest: int = 512) -> Engine:
    """One in this process (`engine_inside`)."""
    hardware = HardwareConfig(device="cpu", colocate_vllm=True)
    sampling = SamplingConfig(max_prompt_tokens=longest // 2, max_new_tokens=longest // 2)
    return Engine(model, hardware, sampling, lora=None, rank=0)


@contextmanager
def engine_inside() -> Iterator[None]:
    """vLLM in this process. On the CPU it packs weights for its kernels when it loads them, and cannot take
    others after that, nor lend them: linear layers are as on a GPU."""
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("vllm.model_executor.layers.utils.check_cpu_sgl_kernel", lambda *_: False)
        patched.setattr("vllm._custom_ops._supports_onednn", False)
        for name, value in {**alone, "MASTER_PORT": str(free_port("127.0.0.1"))}.items():
            patched.setenv(name, value)
        # Nothing ends an engine within a process, which has one as long as it lives: here are many.
        patched.setattr("vllm.LLM", partial(import_module("vllm").LLM, num_gpu_blocks_override=_BLOCKS))
        yield
    gc.collect()


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
