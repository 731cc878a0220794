"""What tests marked `vllm` share. They run in an environment that holds vLLM: `make test-vllm`."""

from importlib.util import find_spec

import pytest

REAL_VLLM = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="no vLLM in this environment: make test-vllm"),
]
# On the CPU: float32, or vLLM casts to bfloat16; eager, or a start takes minutes.
CPU_OPTIONS = ("--dtype", "float32", "--enforce-eager")
