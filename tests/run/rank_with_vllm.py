"""`python rank_with_vllm.py SPEC`: a rank whose vLLM has its linear layers on the CPU as on a GPU, as in
tests/sampling/real_vllm.py."""

import sys

import vllm._custom_ops  # pyright: ignore[reportMissingImports]
import vllm.model_executor.layers.utils  # pyright: ignore[reportMissingImports]

from diagevo.training import worker

vllm._custom_ops._supports_onednn = False
vllm.model_executor.layers.utils.check_cpu_sgl_kernel = lambda *_: False
sys.exit(worker.main())
