"""The repetition penalty: how much of an update batch says the same thing (Equation 10 of the paper).

Distances are 1 - sentence BLEU-4 on whitespace tokens; clusters come from average linkage; a question's
penalty is the share of the batch that its cluster holds.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def pair_distance(hypothesis: str, reference: str) -> float:
    """The distance of one pair by sacreBLEU: slow, and the definition that `distances` reproduces.

    1 - BLEU-4 with 0.1 added to a zero numerator and no effective order, so a hypothesis of fewer than four
    words is at distance 1 from everything but its own words, which are at distance 0 whatever their number.
    """
    from sacrebleu.metrics.bleu import BLEU

    if hypothesis.split() == reference.split():
        return 0.0
    bleu = BLEU(tokenize="none", smooth_method="floor", smooth_value=0.1, effective_order=False)
    # A corpus of one sentence is that sentence's BLEU, without sacreBLEU's warning about short sentences.
    return 1.0 - bleu.corpus_score([hypothesis], [[reference]]).score / 100


def distances(questions: Sequence[str]) -> NDArray[np.float64]:
    """Pairwise distances 1 - BLEU: (B, B) float64 in [0, 1], symmetric, zero on the diagonal.

    BLEU is not symmetric: the question with the lower index is the hypothesis, and the value is mirrored.
    """
    from diagevo.selfplay.bleu import upper_scores

    tokens = [question.split() for question in questions]
    result = 1.0 - upper_scores(tokens)
    upper = np.triu_indices(len(tokens), 1)
    same: dict[tuple[str, ...], list[int]] = {}
    for i, sequence in enumerate(tokens):
        same.setdefault(tuple(sequence), []).append(i)
    for group in same.values():
        result[np.ix_(group, group)] = 0.0
    np.fill_diagonal(result, 0.0)
    result.T[upper] = result[upper]
    return np.maximum(result, 0.0)


def clusters(distance: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    """Average-linkage clusters of a (B, B) distance matrix, (B,) labels: two merge below `threshold`."""
    if len(distance) < 2:
        return np.zeros(len(distance), dtype=np.int64)
    from scipy.cluster.hierarchy import average, fcluster
    from scipy.spatial.distance import squareform

    # fcluster keeps merges at or below its limit; the paper's threshold itself does not merge.
    limit = np.nextafter(threshold, -np.inf)
    tree = average(squareform(distance, checks=False))
    return fcluster(tree, limit, criterion="distance").astype(np.int64)


def shares(questions: Sequence[str | None], threshold: float = 0.5) -> NDArray[np.float64]:
    """The repetition penalty r_rep of each completion of a step: size of its cluster over B, (B,) float64.

    B counts every completion. A completion without a readable question (None) is a cluster of its own.
    """
    sizes = np.ones(len(questions), dtype=np.int64)
    valid = np.array([i for i, question in enumerate(questions) if question is not None], dtype=np.int64)
    if len(valid):
        labels = clusters(distances([question for question in questions if question is not None]), threshold)
        sizes[valid] = np.bincount(labels)[labels]
    return sizes / max(len(questions), 1)
