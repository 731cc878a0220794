"""Embeddings: SQL holds each once, as float32 bytes by model and text."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sqlalchemy import select

from diagevo.errors import ConfigError, DamagedError, StoreError
from diagevo.memory.events import Embedder
from diagevo.memory.log.database import Database, insert_missing
from diagevo.memory.log.tables import VECTOR, imported_vector_key
from diagevo.text.escaping import utf8

Embed = Callable[[Sequence[str]], np.ndarray]

CACHED = 8192
"""Vectors kept in memory beside SQL."""


def text_hash(text: str) -> str:
    return hashlib.sha256(utf8(text)).hexdigest()


def model_of(embedder: Embedder) -> str:
    """The key of this model's vectors."""
    return f"{embedder.name}@{embedder.revision}/{embedder.dimension}"


class Vectors:
    """The vectors of one embedding model, and those that came with this run's import. `dimension` 0 means
    that of the first vector."""

    def __init__(self, database: Database, run_id: str, embedder: Embedder) -> None:
        self.embedder = embedder
        self.model = model_of(embedder)
        self.dimension = embedder.dimension
        self._models = (imported_vector_key(self.model, run_id), self.model)
        self._database = database
        self._cache: dict[str, np.ndarray] = {}
        self._insert = insert_missing(database, VECTOR)

    def stored(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """The stored vectors among these texts."""
        hashes = {text_hash(text): text for text in texts}
        found = {text: self._cache[h] for h, text in hashes.items() if h in self._cache}
        missing = [h for h, text in hashes.items() if text not in found]
        if not missing:
            return found
        with self._database.read() as connection:
            for start in range(0, len(missing), 500):
                query = select(VECTOR.c.text_hash, VECTOR.c.vector).where(
                    VECTOR.c.model.in_(self._models), VECTOR.c.text_hash.in_(missing[start : start + 500])
                )
                # Local ones come last, and take precedence.
                for hash_, content in connection.execute(query.order_by(VECTOR.c.model == self.model)):
                    if not self._fits(content):
                        raise DamagedError(f"the vector {self.model} of {hashes[hash_]!r} is damaged")
                    vector = np.frombuffer(content, dtype="<f4")
                    self._keep(hash_, vector)
                    found[hashes[hash_]] = vector
        return found

    def embed(self, texts: Sequence[str], embed: Embed) -> np.ndarray:
        """(n, d) float32 vectors of the texts, in order; those without one are embedded and stored.

        Raises ConfigError where the embedder's rows have another length than the run's, or are not finite.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        found = self.stored(texts)
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        if missing:
            made = np.ascontiguousarray(embed(missing), dtype="<f4")
            self._check(made, len(missing))
            rows = [
                {"model": self.model, "text_hash": text_hash(text), "vector": row.tobytes()}
                for text, row in zip(missing, made, strict=True)
            ]
            with self._database.write() as connection:
                connection.execute(self._insert, rows)
            for text, row in zip(missing, made, strict=True):
                self._keep(text_hash(text), row)
                found[text] = row
        return np.stack([found[text] for text in texts])

    def of(self, texts: Sequence[str]) -> np.ndarray:
        """(n, d) vectors of texts that were embedded before. Raises StoreError if one was not."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        found = self.stored(texts)
        missing = [text for text in texts if text not in found]
        if missing:
            raise StoreError(
                f"{len(missing)} texts have no vector of {self.model}, first: {missing[0]!r}",
                hint="embed them: Memory.vectors(texts, embed), or diagevo memory rebuild --embedder",
            )
        return np.stack([found[text] for text in texts])

    def _fits(self, content: Any) -> bool:
        whole = isinstance(content, bytes) and len(content) % 4 == 0
        return whole and self.dimension in (0, len(content) // 4)

    def _keep(self, hash_: str, vector: np.ndarray) -> None:
        if len(self._cache) >= CACHED:
            self._cache.clear()
        self._cache[hash_] = vector

    def _check(self, made: np.ndarray, n: int) -> None:
        if made.ndim != 2 or len(made) != n or (self.dimension and made.shape[1] != self.dimension):
            raise ConfigError(
                f"the embedder gave an array of shape {made.shape} for {n} texts; the run's vectors have"
                f" {self.dimension} numbers",
                hint="for another model: diagevo memory rebuild --embedder",
            )
        if not np.isfinite(made).all():
            raise ConfigError(
                "the embedder gave a vector that is not finite",
                hint="see roles.embedder: another precision or another model",
            )
