# scipy comes without types, so that strict mode would only name them.
# pyright: standard
"""The repetition penalty: how much of an update batch repeats itself.

Distances are 1 - sentence BLEU-4 on whitespace tokens; clusters come from average linkage; a question's
penalty is the share of the batch that its cluster holds.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diagevo.errors import extra

NEED = "the repetition penalty"


def pair_distance(hypothesis: str, reference: str) -> float:
    """The distance of one pair by sacreBLEU: slow, and the definition that `distances` reproduces.

    1 - BLEU-4 with 0.1 added to a zero numerator and no effective order, so a hypothesis of fewer than four
    words is at distance 1 from everything but its own words, which are at distance 0 whatever their number.

    Args:
        hypothesis: a question; tokens are separated by white space.
        reference: another one.

    Returns:
        A number in [0, 1].

    Raises:
        MissingDependencyError: without the extra `train`.
    """
    with extra("train", NEED):
        from sacrebleu.metrics.bleu import BLEU

    if hypothesis.split() == reference.split():
        return 0.0
    bleu = BLEU(tokenize="none", smooth_method="floor", smooth_value=0.1, effective_order=False)
    # A corpus of one sentence is that sentence's BLEU, without sacreBLEU's warning about short sentences.
    return 1.0 - bleu.corpus_score([hypothesis], [[reference]]).score / 100


def distances(questions: Sequence[str]) -> NDArray[np.float64]:
    """Equation 10: pairwise distances 1 - BLEU.

    BLEU is not symmetric: the question with the lower index is the hypothesis, and the value is mirrored.

    Args:
        questions: B questions; tokens are separated by white space.

    Returns:
        (B, B) float64 in [0, 1], symmetric, zero on the diagonal and between identical token sequences.

    Raises:
        MissingDependencyError: without the extra `train`.
    """
    with extra("train", NEED):
        from diagevo.equations.bleu import pair_distances

    tokens = [question.split() for question in questions]
    result = pair_distances(tokens)
    for group in _identical(tokens):
        result[np.ix_(group, group)] = 0.0
    return result


def reference_distances(questions: Sequence[str]) -> NDArray[np.float64]:
    """`distances` by sacreBLEU, pair by pair: (B, B), with the same errors."""
    result = np.zeros((len(questions), len(questions)))
    for i, hypothesis in enumerate(questions):
        for j in range(i + 1, len(questions)):
            result[i, j] = result[j, i] = pair_distance(hypothesis, questions[j])
    return result


def _identical(tokens: Sequence[Sequence[str]]) -> list[list[int]]:
    """Indices of each different word sequence: at distance 0 whatever BLEU says of its length."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, sequence in enumerate(tokens):
        groups.setdefault(tuple(sequence), []).append(i)
    return list(groups.values())


def clusters(distance: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    """Average-linkage clusters.

    Args:
        distance: (B, B) symmetric distances, zero on the diagonal.
        threshold: clusters merge while their average distance is below it.

    Returns:
        (B,) labels, numbered from 1.

    Raises:
        MissingDependencyError: without the extra `train`.
    """
    with extra("train", NEED):
        from scipy.cluster.hierarchy import average, fcluster
        from scipy.spatial.distance import squareform

    if len(distance) < 2:
        return np.ones(len(distance), dtype=np.int64)
    tree = average(squareform(distance, checks=False))
    # fcluster keeps merges at or below its limit; the threshold itself does not merge.
    return fcluster(tree, np.nextafter(threshold, -np.inf), criterion="distance").astype(np.int64)


def cluster_sizes(questions: Sequence[str], threshold: float) -> NDArray[np.int64]:
    """Size of each question's cluster, that of `clusters(distances(questions))`.

    Two clusters whose average distance is below the threshold hold a pair below it. So no cluster reaches
    over the connected components of such pairs, and merges in one component do not touch another: each is
    clustered by itself. Of real questions almost all are alone, and the matrix of all pairs is never needed.

    Args:
        questions: B questions.
        threshold: as in `clusters`.

    Returns:
        (B,) whole numbers from 1 to B.

    Raises:
        MissingDependencyError: without the extra `train`.
    """
    with extra("train", NEED):
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        from diagevo.equations.bleu import near_pairs

    tokens = [question.split() for question in questions]
    near = near_pairs(tokens, threshold)
    near += [(group[0], other) for group in _identical(tokens) for other in group[1:]]
    rows, columns = np.array(near, dtype=np.int64).reshape(-1, 2).T
    shape = (len(tokens), len(tokens))
    graph = coo_array((np.ones(len(near)), (rows, columns)), shape=shape)
    component = connected_components(graph, directed=False)[1]
    sizes = np.ones(len(tokens), dtype=np.int64)
    ends = np.cumsum(np.bincount(component))[:-1]
    for part in np.split(np.argsort(component, kind="stable"), ends):
        if len(part) > 1:
            labels = clusters(distances([questions[int(i)] for i in part]), threshold)
            sizes[part] = np.bincount(labels)[labels]
    return sizes


def shares(
    questions: Sequence[str | None], threshold: float = 0.5, bleu: Literal["kernel", "sacrebleu"] = "kernel"
) -> NDArray[np.float64]:
    """The repetition penalty r_rep: the size of each completion's cluster over B.

    Args:
        questions: the questions of all B completions of a step; None for an unreadable one, which is a
            cluster of its own.
        threshold: questions closer than this share a cluster.
        bleu: who computes the distances; `sacrebleu` computes that of every pair.

    Returns:
        (B,) float64 in (0, 1].

    Raises:
        MissingDependencyError: without the extra `train`.
    """
    sizes = np.ones(len(questions), dtype=np.int64)
    valid = [i for i, question in enumerate(questions) if question is not None]
    readable = [question for question in questions if question is not None]
    if valid and bleu == "kernel":
        sizes[valid] = cluster_sizes(readable, threshold)
    elif valid:
        labels = clusters(reference_distances(readable), threshold)
        sizes[valid] = np.bincount(labels)[labels]
    return sizes / max(len(questions), 1)
