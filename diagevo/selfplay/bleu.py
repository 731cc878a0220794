"""Sentence BLEU-4 between all pairs of a batch, from an inverted index of n-grams.

Importing this module loads numba; `repetition` does so on first use. The compiled kernel is cached on disk
where numba finds a folder it may write to.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numba
import numpy as np
from numpy.typing import NDArray

ORDER = 4
SMOOTHING = 0.1

Ints = NDArray[np.int64]


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile, with a cache on disk where there is a place for one."""
    try:
        return cast(Callable[..., Any], numba.njit(cache=True)(function))
    except RuntimeError:  # no writable folder for numba's cache: compile once a process
        return cast(Callable[..., Any], numba.njit(function))


def ngram_ids(tokens: Sequence[Sequence[str]]) -> tuple[Ints, Ints, list[Ints]]:
    """Number the n-grams of a batch of B token sequences, without collisions.

    Returns the lengths (B,), the sequence each token position belongs to (T,), and for n = 1..4 the id (T,)
    of the n-gram that starts at each position, -1 where it would run past the end of its sequence.
    """
    lengths = np.array([len(sequence) for sequence in tokens], dtype=np.int64)
    owner = np.repeat(np.arange(len(tokens), dtype=np.int64), lengths)
    numbers: dict[str, int] = {}
    words = np.array([numbers.setdefault(t, len(numbers)) for s in tokens for t in s], dtype=np.int64)
    ends = np.repeat(np.cumsum(lengths), lengths)
    position = np.arange(len(words), dtype=np.int64)
    orders = [words]
    for n in range(2, ORDER + 1):
        ids = np.full(len(words), -1, dtype=np.int64)
        starts = position[position + n <= ends]
        # An n-gram is its leading (n-1)-gram and one more word: one number each, so one number together.
        pairs = orders[-1][starts] * len(numbers) + words[starts + n - 1]
        ids[starts] = np.unique(pairs, return_inverse=True)[1].reshape(-1)
        orders.append(ids)
    return lengths, owner, orders


def postings(owner: Ints, ids: Ints, batch: int) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
    """Count the n-grams of one order by sequence and index them both ways.

    Returns, in compressed form: for sequence i, ids and counts at row_start[i]:row_start[i+1]; for id g,
    holders (rising) and their counts at list_start[g]:list_start[g+1]. As row_start, row_ids, row_counts,
    list_start, list_holders, list_counts.
    """
    there = ids >= 0
    size = int(ids.max(initial=-1)) + 1
    keys, counts = np.unique(owner[there] * max(size, 1) + ids[there], return_counts=True)
    counts = counts.astype(np.int64)
    rows, grams = keys // max(size, 1), keys % max(size, 1)
    row_start = np.searchsorted(rows, np.arange(batch + 1)).astype(np.int64)
    by_gram = np.argsort(grams, kind="stable")
    list_start = np.searchsorted(grams[by_gram], np.arange(size + 1)).astype(np.int64)
    return row_start, grams, counts, list_start, rows[by_gram], counts[by_gram]


def _add_matches(
    i: int,
    row_start: Ints,
    row_ids: Ints,
    row_counts: Ints,
    list_start: Ints,
    list_holders: Ints,
    list_counts: Ints,
    matches: Ints,
) -> None:
    """Add to matches[j], for every j > i, the clipped n-gram matches of sequences i and j."""
    for k in range(row_start[i], row_start[i + 1]):
        gram = row_ids[k]
        # Holders rise: walk the list from its end and stop at i.
        at = list_start[gram + 1] - 1
        while list_holders[at] > i:
            matches[list_holders[at]] += min(row_counts[k], list_counts[at])
            at -= 1


_add_matches_compiled = _compiled(_add_matches)


def _scores(
    lengths: Ints,
    one: tuple[Ints, ...],
    two: tuple[Ints, ...],
    three: tuple[Ints, ...],
    four: tuple[Ints, ...],
    smoothing: float,
) -> NDArray[np.float64]:
    """BLEU of each pair i < j, i the hypothesis, in the upper triangle of a (B, B) array; 0 elsewhere."""
    batch = len(lengths)
    scores = np.zeros((batch, batch))
    longest = 1
    for i in range(batch):
        longest = max(longest, lengths[i])
    logs = np.empty(longest + 1)
    logs[0] = np.log(smoothing)  # a zero numerator is replaced by the smoothing constant
    for i in range(1, longest + 1):
        logs[i] = np.log(i)
    matches = np.zeros((4, batch), np.int64)
    for i in range(batch):
        length = lengths[i]
        if length < 4:
            continue  # some order has no n-gram at all: BLEU without effective order is 0
        matches[:, i + 1 :] = 0
        _add_matches_compiled(i, one[0], one[1], one[2], one[3], one[4], one[5], matches[0])
        _add_matches_compiled(i, two[0], two[1], two[2], two[3], two[4], two[5], matches[1])
        _add_matches_compiled(i, three[0], three[1], three[2], three[3], three[4], three[5], matches[2])
        _add_matches_compiled(i, four[0], four[1], four[2], four[3], four[4], four[5], matches[3])
        totals = logs[length] + logs[length - 1] + logs[length - 2] + logs[length - 3]
        for j in range(i + 1, batch):
            if matches[0, j] == 0:
                continue  # no word in common, so no n-gram: BLEU is 0, not smoothed
            precision = (
                logs[matches[0, j]] + logs[matches[1, j]] + logs[matches[2, j]] + logs[matches[3, j]] - totals
            ) / 4
            if length < lengths[j]:
                precision += 1.0 - lengths[j] / length
            scores[i, j] = np.exp(precision)
    return scores


_scores_compiled = _compiled(_scores)


def upper_scores(tokens: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Sentence BLEU-4 in [0, 1] for each pair i < j, sequence i as the hypothesis and j as the reference.

    Zero numerators become 0.1, no effective order. (B, B) float64, zero on and below the diagonal.
    """
    lengths, owner, orders = ngram_ids(tokens)
    index = [postings(owner, ids, len(tokens)) for ids in orders]
    return _scores_compiled(lengths, *index, SMOOTHING)
