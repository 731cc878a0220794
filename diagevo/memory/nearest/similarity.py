"""Similar causes and nodes of a memory: the state's texts, their vectors from SQL, exact search over them.

Below `INDEX_FROM` causes, and wherever LanceDB is not installed, everything is in memory and numpy searches
it, unless `memory.index` says lancedb. Else the causes of committed rounds are in the LanceDB index
(`index.py`), only later ones in memory, and the nearest `NEAREST` are given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from diagevo.memory.events import UNNAMED, Cause, SimilarCause
from diagevo.memory.log.database import Database
from diagevo.memory.log.vectors import Embed, Vectors
from diagevo.memory.nearest.index import DAMAGE, VectorIndex, installed
from diagevo.memory.state.model import MemoryState

PLACES = 6
"""Of a similarity, rounded before it is ordered: the last bits of a float must not decide, and ties go to
the lower number."""


@dataclass(frozen=True, slots=True)
class NodeCandidate:
    """A node on the shortlist; `representative` is its member nearest to the new cause."""

    node_id: str
    label: str
    similarity: float
    representative: str


class Matrix:
    """Vectors of causes in order of number, in one array that grows by doubling."""

    def __init__(self) -> None:
        self._rows = np.zeros((0, 0), dtype=np.float32)
        self.ids: list[str] = []

    def extend(self, ids: Sequence[str], vectors: np.ndarray) -> None:
        """Add (n, d) vectors."""
        n = len(self.ids)
        if n + len(ids) > len(self._rows):
            # Twice the room: one row at a time would copy the array with each cause, which grows with its
            # square.
            grown = np.zeros((max(64, 2 * (n + len(ids))), vectors.shape[1]), dtype=np.float32)
            if n:
                grown[:n] = self._rows[:n]
            self._rows = grown
        self._rows[n : n + len(ids)] = vectors
        self.ids.extend(ids)

    @property
    def rows(self) -> np.ndarray:
        """(n, d): the vectors, without the spare ones."""
        return self._rows[: len(self.ids)]

    def similarities(self, vector: np.ndarray) -> np.ndarray:
        """(n,) cosines with `vector`, rounded."""
        if not self.ids:
            return np.zeros(0)
        return cosines(self.rows, vector)


def cosines(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """(n,) float64 cosines of (n, d) rows of length 1 with `vector`, rounded."""
    # Products in float32, as the vectors are stored; rounded as float64, in which six digits can be told
    # apart.
    return np.round((rows @ vector.astype(np.float32)).astype(np.float64), PLACES)


def best_first(similarities: np.ndarray) -> np.ndarray:
    """Indices by falling similarity, ties in order of number."""
    # Stable: of equals the lower number is first, on every machine.
    return np.argsort(-similarities, kind="stable")


def pairs_above(vectors: np.ndarray, theta: float) -> list[tuple[int, int, float]]:
    """Index pairs i < j of (n, d) vectors of length 1 with cosine above theta, by falling similarity, then
    indices."""
    if len(vectors) < 2:
        return []
    cosines = np.round((vectors @ vectors.T).astype(np.float64), PLACES)
    # Above the diagonal: each pair once, and none of a cause with itself.
    first, second = np.nonzero(np.triu(cosines > theta, k=1))
    found = [(int(i), int(j), float(cosines[i, j])) for i, j in zip(first, second, strict=True)]
    return sorted(found, key=lambda pair: (-pair[2], pair[0], pair[1]))


INDEX_FROM = 50_000
"""Causes: of 1,024 numbers each they are 205 MB, which every process reads from SQL. numpy searches them in
15 ms of a core."""
NEAREST = 1_000
"""Indexed causes that a search gives at first; `nodes` looks further where they are of too few nodes."""


def indexed(state: MemoryState, causes: int) -> bool:
    """Whether a memory with this many causes has an index."""
    asked = (state.config or {}).get("memory", {}).get("index") == "lancedb"
    return asked or (causes >= INDEX_FROM and installed())


class Followed(Protocol):
    """A memory: its state now, where its vectors are, and the run's folder."""

    run_id: str

    @property
    def state(self) -> MemoryState: ...
    @property
    def database(self) -> Database: ...
    @property
    def folder(self) -> Path: ...


class Similarity:
    """Follows the state of a memory: causes are added as they come, and forgotten if a transaction fails."""

    def __init__(self, memory: Followed) -> None:
        self._memory = memory
        self._vectors: Vectors | None = None
        self._matrix = Matrix()
        self._index: VectorIndex | None = None
        self._state = memory.state

    def reset(self) -> None:
        """Forget everything: the state may have been refolded without it."""
        self._matrix = Matrix()
        self._index = None
        self._state = self._memory.state

    def committed(self) -> None:
        """A round was committed: bring the index up to date, if there is one."""
        if indexed(self._memory.state, len(self._memory.state.causes)):
            self.store()
            self._matrix = Matrix()
            self._sync()

    def rebuild(self) -> int:
        """Rebuild the index from SQL, whatever its folder holds. Returns the number of causes in it, or 0."""
        self.reset()
        VectorIndex(self._folder, self.store().model).clear()
        return self._sync()

    @property
    def _folder(self) -> Path:
        return self._memory.folder / "vectors"

    def store(self) -> Vectors:
        """The vectors of the run's embedding model, for the state as it is now."""
        # A transaction that failed is folded again into another state: what was added for the old one may
        # not exist.
        if self._state is not self._memory.state:
            self.reset()
        embedder = self._memory.state.embedder or UNNAMED
        if self._vectors is None or self._vectors.embedder != embedder:
            self._vectors = Vectors(self._memory.database, self._memory.run_id, embedder)
            self.reset()
        return self._vectors

    def vectors(self, texts: Sequence[str], embed: Embed) -> np.ndarray:
        return self.store().embed(texts, embed)

    def _load(self, causes: Sequence[Cause]) -> np.ndarray:
        """Vectors of the original descriptions: a cause may have been renamed since."""
        return self.store().of([self._memory.state.found_as(c) for c in causes])

    def _sync(self) -> int:
        """How many causes the index answers for: those of the last commit, or 0 without an index."""
        state = self._memory.state
        # Causes of the open round may still be rolled back, and stay out of the index on disk.
        committed = list(state.causes.values() if state.open is None else state.open.causes.values())
        if not committed or not indexed(state, len(committed)):
            return 0
        if self._index is None:
            self._index = VectorIndex(self._folder, self.store().model)
        self._index.sync(committed, self._load)
        return len(committed)

    def _search(self, vector: np.ndarray, limit: int) -> tuple[list[str], np.ndarray]:
        """Ids of causes by number, and their cosines: all, or the nearest `limit` of those indexed."""
        state = self._memory.state
        self.store()  # forgets what a refolded state does not have
        ready = self._index.size if self._index is not None else 0
        indexed = ready or self._sync()
        # Causes only ever come at the end, in order of number: what is not indexed and not in memory is the
        # rest.
        missing = list(state.causes.values())[indexed + len(self._matrix.ids) :]
        if missing:
            self._matrix.extend([c.cause_id for c in missing], self._load(missing))
        recent = self._matrix.similarities(vector)
        if not indexed or self._index is None:
            return self._matrix.ids, recent
        numbers, rows = self._nearest(self._index, vector, limit)
        order = np.argsort(numbers)
        ids = [f"c{number}" for number in numbers[order]]
        return [*ids, *self._matrix.ids], np.concatenate([cosines(rows[order], vector), recent])

    def _nearest(self, index: VectorIndex, vector: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
        try:
            return index.nearest(vector, limit)
        except DAMAGE:  # its files disappeared while it was open
            self._index = None
            self._sync()
            assert self._index is not None
            return self._index.nearest(vector, limit)

    def causes(self, vector: np.ndarray, above: float | None) -> list[SimilarCause]:
        ids, found = self._search(vector, NEAREST)
        order: list[int] = best_first(found).tolist()
        if above is not None:
            # The nearest one is given even below θ_dup: the log shows how far the judge was from being
            # asked.
            order = order[: max(1, int((found > above).sum()))]
        return [SimilarCause(cause_id=ids[i], similarity=float(found[i])) for i in order]

    def nodes(self, vector: np.ndarray, k: int) -> list[NodeCandidate]:
        state, limit = self._memory.state, NEAREST
        # The nearest causes may all be of a few nodes: look further until there are k, or nothing is left.
        while True:
            ids, found = self._search(vector, limit)
            nodes = self._best_nodes(state, ids, found, k)
            if len(nodes) == min(k, len(state.nodes)) or len(ids) >= len(state.causes):
                return nodes
            # Few rounds of search, each at most four times what was needed.
            limit *= 4

    @staticmethod
    def _best_nodes(state: MemoryState, ids: list[str], found: np.ndarray, k: int) -> list[NodeCandidate]:
        best: dict[str, NodeCandidate] = {}
        for index in best_first(found):
            cause = state.causes[ids[index]]
            if cause.node_id not in best:
                node = state.nodes[cause.node_id]
                similarity = float(found[index])
                best[node.node_id] = NodeCandidate(node.node_id, node.label, similarity, cause.description)
                if len(best) == k:
                    break
        return list(best.values())

    def node_pairs(self, theta: float, embed: Embed) -> list[tuple[str, str, float]]:
        state, store = self._memory.state, self.store()
        nodes = sorted(state.nodes.values(), key=lambda n: n.number)
        if not nodes:
            return []
        config = (state.config or {}).get("memory", {})
        if config.get("node_embedding", "label") == "centroid":
            rows = np.stack([self._centroid(store, state, n.causes) for n in nodes])
        else:
            rows = store.embed([n.label for n in nodes], embed)
        return [
            (nodes[i].node_id, nodes[j].node_id, round(s, PLACES)) for i, j, s in pairs_above(rows, theta)
        ]

    @staticmethod
    def _centroid(store: Vectors, state: MemoryState, causes: Sequence[str]) -> np.ndarray:
        mean = store.of([state.found_as(state.causes[c]) for c in causes]).mean(axis=0)
        length = float(np.linalg.norm(mean))
        return mean / length if length else mean
