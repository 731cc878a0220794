"""Nearest causes and nodes: exact cosine search with numpy, over memory's vectors of length 1.

A new cause is visible to the very next search. Similarities are rounded to six places before they are
ordered, so that the last bits of a float decide nothing; ties go to the lower number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PLACES = 6


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
    return np.round((rows @ vector.astype(np.float32)).astype(np.float64), PLACES)


def best_first(similarities: np.ndarray) -> np.ndarray:
    """Indices by falling similarity, ties in order of number."""
    return np.argsort(-similarities, kind="stable")


def pairs_above(vectors: np.ndarray, theta: float) -> list[tuple[int, int, float]]:
    """Index pairs i < j of (n, d) vectors of length 1 with cosine above theta, by falling similarity, then
    indices."""
    if len(vectors) < 2:
        return []
    cosines = np.round((vectors @ vectors.T).astype(np.float64), PLACES)
    first, second = np.nonzero(np.triu(cosines > theta, k=1))
    found = [(int(i), int(j), float(cosines[i, j])) for i, j in zip(first, second, strict=True)]
    return sorted(found, key=lambda pair: (-pair[2], pair[0], pair[1]))
