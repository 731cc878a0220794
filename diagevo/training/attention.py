"""The attention implementation of a phase: the requested one, or the best available."""

from importlib.util import find_spec
from typing import Literal

from diagevo.errors import MissingDependencyError

Attention = Literal["auto", "sdpa", "eager", "flash_attention_2"]


def attention_for(asked: Attention, *, on_gpu: bool) -> str:
    """The implementation passed to transformers.

    `auto`: FlashAttention 2 on a GPU if the package flash-attn or a kernel of the package `kernels` can be
    loaded, else torch's own (sdpa). Raises MissingDependencyError if FlashAttention was requested by name but
    is missing.
    """
    if asked in ("sdpa", "eager"):
        return asked
    from transformers.utils.import_utils import is_flash_attn_2_available

    there = on_gpu and is_flash_attn_2_available(kernels_fallback_ok=True)
    if asked == "flash_attention_2" and not there:
        raise MissingDependencyError(
            "hardware.attention is flash_attention_2, but "
            + ("no kernel of it can be loaded here." if on_gpu else "no CUDA device is there."),
            hint="run: pip install 'diagevo[flash]' (a built kernel is fetched once, from the hub), or set"
            " hardware.attention to auto",
        )
    return "flash_attention_2" if there else "sdpa"


def described(attention: str) -> str:
    """The implementation in words: FlashAttention has two sources."""
    if attention != "flash_attention_2":
        return attention
    return f"{attention} of {'flash-attn' if find_spec('flash_attn') else 'kernels'}"
