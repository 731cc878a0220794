"""One-token attention for the decoding loop: the query heads of a group share keys and values without copies.

transformers' implementation copies keys and values for each query head of a group: a quarter of a small
model's time.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "diagevo_grouped"


def _grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Like sdpa; for one new position, the query heads of a group become positions of their key head."""
    rows, heads, length, width = query.shape
    if length != 1:
        return sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            is_causal=is_causal,
            **kwargs,
        )
    grouped = query.view(rows, key.shape[1], heads // key.shape[1], width)
    output = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=scaling
    )
    return output.reshape(rows, 1, heads, value.shape[-1]), None


AttentionInterface.register(GROUPED, _grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)


class grouped_attention:
    """Within the context, a model that runs on sdpa decodes with grouped attention; others are left alone."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._config = model.config
        self._was = self._config._attn_implementation

    def __enter__(self) -> None:
        if self._was == "sdpa":
            self._model.set_attn_implementation(GROUPED)

    def __exit__(self, *_: object) -> None:
        if self._was == "sdpa":
            self._model.set_attn_implementation(self._was)
