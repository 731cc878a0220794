"""Text to unit vectors: the hashing embedder of the embedded profile, an endpoint, or a local sentence model.

Every embedder returns float32 rows of length 1, so that a dot product is the cosine. Name, dimension and
revision are part of the log: vectors of different models are never compared. Caching by text is the memory's.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from typing import Protocol

import numpy as np

_WORD = re.compile(r"\w+")


class Embedder(Protocol):
    """`embed` returns float32 (n, dimension), every row of length 1. Equal texts give equal rows in every
    process."""

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def revision(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Scale (n, d) rows to length 1, as float32. A row of zeros becomes the first axis: it has no direction.

    Raises ValueError where a number is not finite.
    """
    rows = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("a vector holds a number that is not finite")
    rows = rows.copy()
    rows[~rows.any(axis=1), 0] = 1.0
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@lru_cache(maxsize=65536)
def _slot(feature: str, dimension: int) -> tuple[int, float]:
    """Axis and sign of a feature, from a hash that every process computes alike."""
    number = int.from_bytes(blake2b(feature.encode(), digest_size=8).digest(), "big")
    return number % dimension, 1.0 if number >> 63 else -1.0


class HashingEmbedder:
    """Words and pairs of neighbouring words, hashed to signed axes.

    It sees shared words, never meaning: right for the canonical phrases of a rule diagnostician, useless for
    free text (paraphrases came out at cosines of 0.00 to 0.29).
    """

    name = "hashing"
    revision = "words-bigrams-1"

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts, (n, dimension). A text without a word gets the first axis."""
        rows = np.zeros((len(texts), self.dimension))
        for row, text in zip(rows, texts, strict=True):
            words = _WORD.findall(text.casefold())
            for feature in (*words, *(f"{a} {b}" for a, b in pairwise(words))):
                axis, sign = _slot(feature, self.dimension)
                row[axis] += sign
        return unit_rows(rows)
