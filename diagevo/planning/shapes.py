"""A model's size from its config.json: the number of weights, and the memory per token. No torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder of the Llama family, in numbers."""

    hidden: int
    intermediate: int
    layers: int
    query: int
    """Width of all query heads together."""
    key: int
    """Width of all key heads together; that of the values is the same."""
    vocabulary: int
    tied: bool
    """The head is the embedding."""
    small: int
    """Biases and norms of a layer."""
    context: int

    @property
    def linear(self) -> int:
        """Weights of a layer's matrices."""
        return self.hidden * (2 * self.query + 2 * self.key + 3 * self.intermediate)

    @property
    def layer(self) -> int:
        return self.linear + self.small

    @property
    def outer(self) -> int:
        """Weights outside the layers: embedding, head, last norm."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def weights(self) -> int:
        return self.layers * self.layer + self.outer

    @property
    def cached(self) -> int:
        """Numbers that a cache keeps per token."""
        return 2 * self.layers * self.key

    def adapters(self, rank: int) -> int:
        """Weights of LoRA adapters of this rank on every matrix of the layers."""
        query, hidden = self.query, self.hidden
        ends = 2 * (hidden + query) + 2 * (hidden + self.key) + 3 * (hidden + self.intermediate)
        return self.layers * rank * ends


def shape_of(config: Mapping[str, Any]) -> Shape | None:
    """The shape from config.json; None for an architecture that is not supported here."""
    kind = config.get("model_type")
    if kind not in ("llama", "mistral", "qwen2", "qwen3"):
        return None
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    width = config.get("head_dim") or hidden // heads
    query, key = heads * width, (config.get("num_key_value_heads") or heads) * width
    intermediate = config["intermediate_size"]
    biased = kind == "qwen2" or config.get("attention_bias", False)
    small = 2 * hidden + (query + 2 * key if biased else 0) + (2 * width if kind == "qwen3" else 0)
    if config.get("attention_bias") and kind != "qwen2":
        small += hidden
    if config.get("mlp_bias"):
        small += 2 * intermediate + hidden
    return Shape(
        hidden=hidden,
        intermediate=intermediate,
        layers=config["num_hidden_layers"],
        query=query,
        key=key,
        vocabulary=config["vocab_size"],
        tied=config.get("tie_word_embeddings", False),
        small=small,
        context=config.get("max_position_embeddings", 2**63),
    )


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int, tied: bool) -> Shape:
    vocabulary, small, context = 151_936, 2 * hidden + 2 * 128, 32_768
    return Shape(
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        query=heads * 128,
        key=1024,
        vocabulary=vocabulary,
        tied=tied,
        small=small,
        context=context,
    )


KNOWN = {
    "Qwen/Qwen3-0.6B-Base": _qwen3(1024, 3072, 28, 16, True),
    "Qwen/Qwen3-1.7B-Base": _qwen3(2048, 6144, 28, 16, True),
    "Qwen/Qwen3-4B-Base": _qwen3(2560, 9728, 36, 32, True),
    "Qwen/Qwen3-4B-Instruct-2507": _qwen3(2560, 9728, 36, 32, True),
    "Qwen/Qwen3-8B-Base": _qwen3(4096, 12288, 36, 32, False),
    "OctoThinker/OctoThinker-8B-Hybrid-Base": Shape(
        hidden=4096,
        intermediate=14336,
        layers=32,
        query=4096,
        key=1024,
        vocabulary=128_256,
        tied=False,
        small=2 * 4096,
        context=131_072,
    ),
}
"""The models that the profiles name, so that a plan can be made before one is downloaded."""


SMALL = {"builtin:arithmetic": "weights", "builtin:arithmetic-methods": "method_weights"}
"""Folders of `diagevo.arithmetic`, by name."""


def config_file(model: str) -> Path | None:
    """The config.json of a folder, a hub id in the local cache or our own model; None: it is not here."""
    if model in SMALL:
        return Path(str(files("diagevo.arithmetic") / SMALL[model])) / "config.json"
    file = Path(model).expanduser() / "config.json"
    return file if file.is_file() else _downloaded(model)


def find_shape(model: str) -> Shape | None:
    """From its config.json or KNOWN; None if neither has it."""
    if (file := config_file(model)) is None:
        return KNOWN.get(model)
    try:
        return shape_of(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None  # an invalid config.json: loading the model will report it


def _downloaded(model: str) -> Path | None:
    if model.count("/") != 1 or find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None
