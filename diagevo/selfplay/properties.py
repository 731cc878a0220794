"""What the questions of a run are like: length, 2-gram diversity and coverage, as in the paper's appendix.

"Diagnostic Evaluation Protocols": average length in words, lexical diversity over adjacent word pairs, and a
projection of the questions' embeddings to two dimensions. Words are what white space separates, case kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl


def diversity(questions: Sequence[str]) -> float | None:
    """2-gram diversity in percent: different adjacent word pairs over all of them; None without any pair.

    A larger set of questions repeats more pairs, so only sets of equal size are comparable.
    """
    pairs = [pair for question in questions for pair in _pairs(question)]
    return 100 * len(set(pairs)) / len(pairs) if pairs else None


def _pairs(question: str) -> list[tuple[str, str]]:
    words = question.split()
    return list(pairwise(words))


def properties(rounds: Sequence[int], questions: Sequence[str]) -> pl.DataFrame:
    """One row a round, in order: `round`, `questions` (how many), `words` (mean), `diversity` (percent)."""
    import polars as pl

    by_round: dict[int, list[str]] = {}
    for number, question in zip(rounds, questions, strict=True):
        by_round.setdefault(number, []).append(question)
    rows = [
        (number, len(texts), sum(len(text.split()) for text in texts) / len(texts), diversity(texts))
        for number, texts in sorted(by_round.items())
    ]
    schema = {"round": pl.Int64, "questions": pl.Int64, "words": pl.Float64, "diversity": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def principal_axes(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Vectors (n, d) in the plane of their two principal components: (n, 2) float64, centred.

    A component's sign is arbitrary; here its entry of largest magnitude is positive, so that a figure does
    not flip from one run or library to the next. A component that does not exist (n = 1, d = 1) is zero.
    """
    points = np.asarray(vectors, dtype=np.float64)
    plane = np.zeros((len(points), 2))
    if not points.size:
        return plane
    centred = points - points.mean(axis=0)
    components = np.linalg.svd(centred, full_matrices=False)[2][:2]
    largest = np.abs(components).argmax(axis=1)
    components *= np.where(components[np.arange(len(components)), largest] < 0, -1.0, 1.0)[:, None]
    plane[:, : len(components)] = centred @ components.T
    return plane


def coverage(rounds: Sequence[int], modes: Sequence[str], vectors: NDArray[np.floating]) -> pl.DataFrame:
    """One row a question, in the order given: `round`, `mode`, `x`, `y`.

    One projection for all rounds, so that a region means the same in each. `vectors`: embeddings, (n, d).
    """
    import polars as pl

    plane = principal_axes(vectors)
    schema = {"round": pl.Int64, "mode": pl.String, "x": pl.Float64, "y": pl.Float64}
    return pl.DataFrame(
        {"round": list(rounds), "mode": list(modes), "x": plane[:, 0], "y": plane[:, 1]}, schema=schema
    )
