"""What the decoding loop asks of a model's attention: a cache that grows in place, and one-token attention.

transformers' DynamicCache copies itself at every token, and its attention copies keys and values for each
query head of a group. Both cost more than the model where the model is small. Here the cache writes into
spare room, and the query heads of a group attend as if they were several positions of one head: no copies.
"""

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "diagevo_grouped"
_ROOM = 64  # positions added when a layer is full


class _GrowingLayer(DynamicLayer):
    """Keys and values (R, heads, length, width) as views into buffers with room for more positions."""

    _key_buffer: torch.Tensor
    _value_buffer: torch.Tensor

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self._key_buffer = key_states[:, :, :0]
        self._value_buffer = value_states[:, :, :0]
        self._length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        length = self._length + key_states.shape[-2]
        if length > self._key_buffer.shape[-2]:
            self._key_buffer = self._grown(self._key_buffer, key_states, length + _ROOM)
            self._value_buffer = self._grown(self._value_buffer, value_states, length + _ROOM)
        self._key_buffer[:, :, self._length : length] = key_states
        self._value_buffer[:, :, self._length : length] = value_states
        self._length = length
        return self._show()

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._key_buffer = self._key_buffer[indices]
        self._value_buffer = self._value_buffer[indices]
        self._show()

    def _grown(self, old: torch.Tensor, states: torch.Tensor, room: int) -> torch.Tensor:
        new = states.new_empty(*states.shape[:2], room, states.shape[3])
        new[:, :, : self._length] = old[:, :, : self._length]
        return new

    def _show(self) -> tuple[torch.Tensor, torch.Tensor]:
        keys = self._key_buffer[:, :, : self._length]
        values = self._value_buffer[:, :, : self._length]
        self.keys, self.values = keys, values
        return keys, values


def growing_cache(config: Any) -> DynamicCache:
    """A DynamicCache whose plain layers grow in place; sliding-window and other layers stay as they are."""
    cache = DynamicCache(config=config)
    cache.layers = [_GrowingLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


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
    """As sdpa; for one new position, the query heads of a group become positions of their key head."""
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
