"""Similar causes and nodes of a memory: the state's texts, their vectors from SQL, exact search over them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from diagevo.memory.events import SimilarCause
from diagevo.memory.model import MemoryState
from diagevo.memory.recall import PLACES, Matrix, NodeCandidate, best_first, pairs_above
from diagevo.memory.vectors import Embed, Vectors

if TYPE_CHECKING:
    from diagevo.memory.memory import Memory


class Similarity:
    """Follows the state of a memory: causes are added as they come, and forgotten where a transaction
    fails."""

    def __init__(self, memory: "Memory") -> None:
        self._memory = memory
        self._vectors: Vectors | None = None
        self._matrix = Matrix()

    def reset(self) -> None:
        """The state was folded again: forget what it no longer holds."""
        self._vectors = None
        self._matrix = Matrix()

    def committed(self) -> None:
        """A round was committed."""

    def store(self) -> Vectors:
        """The vectors of the run's embedding model."""
        embedder = self._memory.state.embedder or ("unnamed", 0, "")
        if self._vectors is None or self._vectors.embedder != embedder:
            self._vectors = Vectors(self._memory.database, *embedder)
            self._matrix = Matrix()
        return self._vectors

    def vectors(self, texts: Sequence[str], embed: Embed) -> np.ndarray:
        return self.store().embed(texts, embed)

    def _similarities(self, vector: np.ndarray) -> tuple[MemoryState, np.ndarray]:
        state, store = self._memory.state, self.store()
        missing = list(state.causes.values())[len(self._matrix.ids) :]
        if missing:
            self._matrix.extend([c.cause_id for c in missing], store.of([c.description for c in missing]))
        return state, self._matrix.similarities(vector)

    def causes(self, vector: np.ndarray) -> list[SimilarCause]:
        _, similarities = self._similarities(vector)
        ids = self._matrix.ids
        return [
            SimilarCause(cause_id=ids[i], similarity=float(similarities[i])) for i in best_first(similarities)
        ]

    def nodes(self, vector: np.ndarray, k: int) -> list[NodeCandidate]:
        state, similarities = self._similarities(vector)
        best: dict[str, NodeCandidate] = {}
        for index in best_first(similarities):
            cause = state.causes[self._matrix.ids[index]]
            if cause.node_id not in best:
                node = state.nodes[cause.node_id]
                best[node.node_id] = NodeCandidate(
                    node.node_id, node.label, float(similarities[index]), cause.description
                )
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
        mean = store.of([state.causes[c].description for c in causes]).mean(axis=0)
        length = float(np.linalg.norm(mean))
        return mean / length if length else mean
