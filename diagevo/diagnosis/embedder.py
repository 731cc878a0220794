"""Text to unit vectors: the hashing embedder of the embedded profile, an endpoint, or a local sentence model.

Every embedder returns float32 rows of length 1, so that a dot product is the cosine. Name, dimension and
revision are part of the log: vectors of different models are never compared. The memory caches by text.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b, file_digest, sha256
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from diagevo.errors import ConfigError, MissingDependencyError, RefusedError, ServiceError, extra
from diagevo.memory.events import catalogue as events

if TYPE_CHECKING:
    import numpy as np

    from diagevo.config.models import EmbedderRole

LARGEST_BATCH = 64
"""Texts per request, until a service refuses that many."""

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

    def embed(self, texts: Sequence[str]) -> "np.ndarray": ...


def identity(embedder: Embedder) -> events.Embedder:
    """The identity of an embedder in the log: vectors of another identity are never compared with its own."""
    return events.Embedder(name=embedder.name, dimension=embedder.dimension, revision=embedder.revision)


def unit_rows(rows: "np.ndarray") -> "np.ndarray":
    """Scale (n, d) rows to length 1, as float32. A zero row, which has no direction, becomes the first axis.

    Raises ValueError if a number is not finite.
    """
    import numpy as np

    rows = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("a vector holds a number that is not finite")
    rows = rows.copy()
    rows[~rows.any(axis=1), 0] = 1.0
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@lru_cache(maxsize=65536)
def _slot(feature: str, dimension: int) -> tuple[int, float]:
    """Axis and sign of a feature, from a hash that is the same in every process."""
    number = int.from_bytes(blake2b(feature.encode(), digest_size=8).digest(), "big")
    return number % dimension, 1.0 if number >> 63 else -1.0


class HashingEmbedder:
    """Words and pairs of adjacent words, hashed to signed axes.

    It sees shared words, never meaning: right for the canonical phrases of a rule diagnostician, useless for
    free text (paraphrases came out at cosines of 0.00 to 0.29).
    """

    name = events.HASHING
    revision = "words-bigrams-1"

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def embed(self, texts: Sequence[str]) -> "np.ndarray":
        """Embed texts, (n, dimension). A text without a word gets the first axis."""
        import numpy as np

        rows = np.zeros((len(texts), self.dimension))
        for row, text in zip(rows, texts, strict=True):
            words = _WORD.findall(text.casefold())
            for feature in (*words, *(f"{a} {b}" for a, b in pairwise(words))):
                axis, sign = _slot(feature, self.dimension)
                row[axis] += sign
        return unit_rows(rows)


class OpenAIEmbedder:
    """Vectors from an OpenAI-compatible `/embeddings` service, in batches as large as the service accepts."""

    revision = "served"

    def __init__(self, role: "EmbedderRole", *, retries: int | None = None) -> None:
        from diagevo.diagnosis.endpoint import Endpoint
        from diagevo.sampling.service import RETRIES, Service

        self.name = role.model
        self.dimension = role.dimension
        service = Service(
            role.base_url,
            key_env=role.api_key_env,
            timeout=role.timeout,
            retries=RETRIES if retries is None else retries,
        )
        self._endpoint = Endpoint(service, connections=1)
        self._batch = LARGEST_BATCH
        self._ask_dimension = True

    def embed(self, texts: Sequence[str]) -> "np.ndarray":
        """Embed texts, (n, dimension). Raises ServiceError, ConfigError if the dimension differs."""
        import numpy as np

        rows: list[np.ndarray] = []
        done = 0
        while done < len(texts):
            batch = list(texts[done : done + self._batch])
            try:
                rows.append(self._rows(batch))
                done += len(batch)
            except RefusedError as refused:
                self._ask_for_less(len(batch), refused.message)
        return np.concatenate(rows) if rows else np.zeros((0, self.dimension), np.float32)

    def close(self) -> None:
        self._endpoint.close()

    def _ask_for_less(self, batch: int, refused: str) -> None:
        """Try smaller batches, then no requested dimension. Services differ in both."""
        if batch > 1:
            self._batch = batch // 2
        elif self._ask_dimension:
            self._ask_dimension, self._batch = False, LARGEST_BATCH
        else:
            raise ServiceError(
                f"nothing can be embedded with {self.name}: {refused}",
                hint="check model and base_url of the embedder role",
            ) from None

    def _rows(self, texts: list[str]) -> "np.ndarray":
        import numpy as np

        wish: dict[str, Any] = {"dimensions": self.dimension} if self._ask_dimension else {}
        vectors = self._endpoint.embed(model=self.name, input=texts, **wish)
        found = {len(vector) for vector in vectors}
        if found != {self.dimension}:
            numbers = " and ".join(map(str, sorted(found)))
            raise ConfigError(
                f"{self.name} gives vectors of {numbers} numbers, but the configuration says "
                f"{self.dimension}",
                hint=f"set roles.embedder.dimension to {max(found)}",
            )
        try:
            return unit_rows(np.array(vectors))
        except ValueError as error:
            raise ServiceError(
                f"{self._endpoint.where}: {error}", hint="check the model of the embedder role"
            ) from error


class SentenceTransformersEmbedder:
    """Vectors from a sentence-transformers model, in a folder or on the hub (extra `local-embedder`)."""

    def __init__(self, role: "EmbedderRole") -> None:
        folder = Path(role.model)
        on_hub = not folder.exists() and role.model.count("/") == 1
        if not on_hub and not (folder / "modules.json").is_file():
            raise MissingDependencyError(
                f"{folder} is not a sentence-transformers folder: it has no modules.json",
                hint="set roles.embedder.model to a folder that SentenceTransformer.save wrote or a hub id",
            )
        with extra("local-embedder", "the sentence-transformers embedder"):
            from huggingface_hub.utils import disable_progress_bars

            disable_progress_bars()  # before importing transformers, which then shows no progress bar either
            from sentence_transformers import (  # pyright: ignore[reportMissingImports]  # an extra
                SentenceTransformer,
            )
        try:
            self._model = SentenceTransformer(role.model, local_files_only=not on_hub)
        except OSError as error:
            raise MissingDependencyError(
                f"{role.model} could not be read as a sentence model: {str(error).splitlines()[0]}",
                hint="name a folder that SentenceTransformer.save wrote, or a hub id that can be fetched",
            ) from error
        self.name = folder.name if on_hub else folder.resolve().name
        self.dimension = role.dimension
        self.revision = _commit(self._model) if on_hub else _folder_digest(folder)
        found = self._model.encode(["a"], show_progress_bar=False).shape[1]
        if found != role.dimension:
            raise ConfigError(
                f"{folder} gives vectors of {found} numbers, the configuration says {role.dimension}",
                hint=f"set roles.embedder.dimension to {found}",
            )

    def embed(self, texts: Sequence[str]) -> "np.ndarray":
        import numpy as np

        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        return unit_rows(self._model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False))


def embedder_for(role: "EmbedderRole") -> Embedder:
    """The embedder that a role names. Raises MissingDependencyError, ConfigError."""
    match role.engine:
        case "hashing":
            return HashingEmbedder(role.dimension)
        case "openai":
            return OpenAIEmbedder(role)
        case "sentence-transformers":
            return SentenceTransformersEmbedder(role)


def _commit(model: Any) -> str:
    """The hub commit that a model was loaded from."""
    return str(model[0].auto_model.config._commit_hash)[:12]


def _folder_digest(folder: Path) -> str:
    """A short hash over names and contents of all files: another model in the same folder is
    another revision."""
    total = sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(path.relative_to(folder).as_posix().encode() + b"\0")
        with path.open("rb") as file:
            total.update(file_digest(file, "sha256").digest())
    return total.hexdigest()[:12]
