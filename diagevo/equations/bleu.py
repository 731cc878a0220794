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
Postings = tuple[Ints, Ints, Ints, Ints, Ints, Ints]


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile, with a cache on disk where there is a place for one."""
    try:
        return cast(Callable[..., Any], numba.njit(cache=True)(function))
    except RuntimeError:  # no writable folder for numba's cache: compile once a process
        return cast(Callable[..., Any], numba.njit(function))


def ngram_ids(tokens: Sequence[Sequence[str]]) -> tuple[Ints, Ints, list[Ints]]:
    """Number the n-grams of a batch, without collisions.

    Args:
        tokens: B sequences of T tokens together.

    Returns:
        The length of each sequence (B,); the sequence that each token belongs to (T,); for n = 1..4 the id
        (T,) of the n-gram that starts at each token, -1 where it would run past the end of its sequence.
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


def postings(owner: Ints, ids: Ints, batch: int) -> Postings:
    """Count the n-grams of one order by sequence and index them both ways.

    Args:
        owner: (T,) the sequence of each token.
        ids: (T,) the n-gram at each token, -1 for none.
        batch: B, the number of sequences.

    Returns:
        row_start (B + 1,), row_ids, row_counts, list_start (number of ids + 1,), list_holders, list_counts.
        Sequence i has the ids and counts at row_start[i]:row_start[i+1]; id g is held by the sequences
        (rising) with the counts at list_start[g]:list_start[g+1].
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


def _add_matches(i: int, index: Postings, matches: Ints) -> None:
    """Add to matches[j], for every j > i, the clipped n-gram matches of sequences i and j."""
    row_start, row_ids, row_counts, list_start, list_holders, list_counts = index
    for k in range(row_start[i], row_start[i + 1]):
        gram = row_ids[k]
        # Holders rise: walk the list from its end and stop at i.
        at = list_start[gram + 1] - 1
        while list_holders[at] > i:
            matches[list_holders[at]] += min(row_counts[k], list_counts[at])
            at -= 1


_add_matches_compiled = _compiled(_add_matches)


def _distance(matches: Ints, length: int, other: int, logs: NDArray[np.float64]) -> float:
    """1 - BLEU from the matches of each order (4,), the length of the hypothesis (from 4) and the other."""
    if matches[0] == 0:
        return 1.0  # no word in common, so no n-gram: BLEU is 0, not smoothed
    precision = logs[matches[0]] + logs[matches[1]] + logs[matches[2]] + logs[matches[3]]
    precision -= logs[length] + logs[length - 1] + logs[length - 2] + logs[length - 3]
    precision /= 4
    if length < other:
        precision += 1.0 - other / length
    return max(0.0, 1.0 - np.exp(precision))


_distance_compiled = _compiled(_distance)


def _logarithms(lengths: Ints) -> NDArray[np.float64]:
    """Logarithms of 0 to the longest length; a zero numerator is replaced by the smoothing constant."""
    counts = np.arange(max(4, lengths.max(initial=0)) + 1, dtype=np.float64)
    counts[0] = SMOOTHING
    return np.log(counts)


def _distances(
    lengths: Ints,
    orders: tuple[Postings, ...],
    logs: NDArray[np.float64],
) -> NDArray[np.float64]:
    """1 - BLEU of each pair i < j, i the hypothesis, on both sides of the diagonal of a (B, B) array."""
    batch = len(lengths)
    one, two, three, four = orders
    result = np.ones((batch, batch))
    matches = np.zeros((4, batch), np.int64)
    for i in range(batch):
        if lengths[i] < 4:
            continue  # some order has no n-gram at all: BLEU without effective order is 0
        matches[:, i + 1 :] = 0
        _add_matches_compiled(i, one, matches[0])
        _add_matches_compiled(i, two, matches[1])
        _add_matches_compiled(i, three, matches[2])
        _add_matches_compiled(i, four, matches[3])
        for j in range(i + 1, batch):
            result[i, j] = _distance_compiled(matches[:, j], lengths[i], lengths[j], logs)
            result[j, i] = result[i, j]
    return result


_distances_compiled = _compiled(_distances)


def _common(i: int, j: int, row_start: Ints, row_ids: Ints, row_counts: Ints) -> int:
    """Clipped matches of one order between two sequences, whose n-grams are listed by rising id."""
    a, b = row_start[i], row_start[j]
    total = 0
    while a < row_start[i + 1] and b < row_start[j + 1]:
        if row_ids[a] == row_ids[b]:
            total += int(min(row_counts[a], row_counts[b]))
            a += 1
            b += 1
        elif row_ids[a] < row_ids[b]:
            a += 1
        else:
            b += 1
    return total


_common_compiled = _compiled(_common)


def _near(
    lengths: Ints,
    orders: tuple[Postings, ...],
    logs: NDArray[np.float64],
    threshold: float,
) -> list[tuple[int, int]]:
    """Pairs i < j with 1 - BLEU below the threshold. Without a common 4-gram few pairs can get there."""
    batch = len(lengths)
    one, two, three, four = orders
    found = [(0, 0)]
    matches = np.zeros(4, np.int64)
    fours = np.zeros(batch, np.int64)
    for i in range(batch):
        if lengths[i] < 4:
            continue
        fours[i + 1 :] = 0
        _add_matches_compiled(i, four, fours)
        # The best that a pair without a common 4-gram can do: all shorter n-grams match.
        best = np.exp((logs[0] - logs[lengths[i] - 3]) / 4)
        hopeless = 1.0 - best > threshold + 1e-9
        for j in range(i + 1, batch):
            if hopeless and fours[j] == 0:
                continue
            matches[0] = _common_compiled(i, j, one[0], one[1], one[2])
            matches[1] = _common_compiled(i, j, two[0], two[1], two[2])
            matches[2] = _common_compiled(i, j, three[0], three[1], three[2])
            matches[3] = fours[j]
            if _distance_compiled(matches, lengths[i], lengths[j], logs) < threshold:
                found.append((i, j))
    return found[1:]


_near_compiled = _compiled(_near)


def pair_distances(tokens: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """1 - sentence BLEU-4 of each pair: a zero numerator becomes 0.1, no effective order.

    Args:
        tokens: B sequences; of a pair the one with the lower index is the hypothesis.

    Returns:
        (B, B) float64 in [0, 1], symmetric; the diagonal is left at 1.
    """
    lengths, owner, orders = ngram_ids(tokens)
    index = tuple(postings(owner, ids, len(tokens)) for ids in orders)
    return _distances_compiled(lengths, index, _logarithms(lengths))


def near_pairs(tokens: Sequence[Sequence[str]], threshold: float) -> list[tuple[int, int]]:
    """The pairs that `pair_distances` puts below a threshold; most others are never looked at.

    Args:
        tokens: B sequences.
        threshold: a distance, from 0 to 1.

    Returns:
        Pairs i < j of indices.
    """
    lengths, owner, orders = ngram_ids(tokens)
    index = tuple(postings(owner, ids, len(tokens)) for ids in orders)
    return _near_compiled(lengths, index, _logarithms(lengths), threshold)
