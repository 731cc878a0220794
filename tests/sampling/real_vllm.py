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
