"""Level 3: what failures have that no passing sibling has, or lack that all have, tested against chance.

Mined contrast sets (Bay and Pazzani 2001; Monroe et al. 2008), tested exactly: within a prompt the labels
"passed" and "failed" are permuted, which gives each feature the probability that it would separate failures
from passes by chance, given the harmless variation of the responses. The prompt is the unit. What the best
feature reaches under permuted labels is the threshold for all (Westfall and Young 1993).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

ALPHA = 0.02
"""Probability of a false feature among true ones."""
NOTHING = 0.0002
"""Probability that anything at all is found with uninformative labels: the first finding must be this
unlikely."""
DEALT = 99
"""Number of label permutations."""
MOST = 16
"""Responses tested per side of a prompt; all are assigned."""
FEWEST = 4
"""Minimum prompts that a feature must separate."""
BLOCK = 1024
"""Features whose probabilities are computed at once."""


@dataclass(slots=True)
class Tested:
    """Signed features that set failures apart: 1 where only failures have it, -1 where only they lack it."""

    names: np.ndarray
    signs: np.ndarray
    seen: np.ndarray
    """Prompts in which it separates failures from passes."""
    expected: np.ndarray
    """And in how many it would by chance."""


@dataclass(slots=True)
class Side:
    """The features of responses among which labels are permuted, sorted and unique."""

    passed: list[np.ndarray]
    failed: list[np.ndarray]
    borrowed: bool = False
    """Whether the passes belong to other prompts."""


Signed = tuple[np.ndarray, np.ndarray, np.ndarray]
"""For a failure: features that no pass has, those that all have and it lacks, and those that all have."""


def signed(side: Side) -> list[Signed]:
    """Of each failure."""
    names, number = np.unique(np.concatenate(side.passed), return_counts=True)
    every = names[number == len(side.passed)]
    return [
        (
            np.setdiff1d(each, names, assume_unique=True),
            np.setdiff1d(every, each, assume_unique=True),
            every,
        )
        for each in side.failed
    ]


def tested(within: Sequence[Side], between: Sequence[Sequence[Side]]) -> Tested:
    """The signed features that permuted labels do not explain.

    Args:
        within: Responses to one prompt each.
        between: One response per prompt, among similar prompts; the same prompts in the same order, once for
            each response. Labels are permuted among prompts, and a feature in half of a prompt's responses
            counts half.
    """
    rng = np.random.default_rng(0)
    ways = [[[side] for side in within], [list(sides) for sides in between]]
    found = [_kept(_often(way), rng, ALPHA) for way in ways if way]
    if not found:
        nothing = np.zeros(0)
        return Tested(nothing.astype(np.uint64), nothing.astype(np.int8), nothing, nothing)
    names, signs, seen, expected = (
        np.concatenate([getattr(each, field) for each in found])
        for field in ("names", "signs", "seen", "expected")
    )
    order, first = _sorted(names, signs)
    if len(first):
        seen, expected = np.add.reduceat(seen[order], first), np.add.reduceat(expected[order], first)
    return Tested(names[order][first], signs[order][first], seen, expected)


@dataclass(slots=True)
class _Part:
    """The signed features of a side: how many responses that have a feature, or lack it, fail by chance."""

    names: np.ndarray
    signs: np.ndarray
    chances: np.ndarray
    """The probability that all of them fail; 0 if there are too many."""
    trials: np.ndarray
    """How many they are."""
    moments: np.ndarray
    """(ODDS, features): logarithm of the mean of odds to the power of how many fail."""
    failed: int


def _often(blocks: Sequence[Sequence[Side]]) -> list[list[Side]]:
    """Only the features that FEWEST prompts have: others cannot be significant."""
    each = [np.unique(np.concatenate(responses)) for sides in blocks for responses in _prompts(sides)]
    names, number = np.unique(np.concatenate([*each, np.zeros(0, np.uint64)]), return_counts=True)
    names = names[number >= FEWEST]

    def kept(responses: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [one[np.isin(one, names, assume_unique=True)] for one in responses]

    return [
        [replace(side, passed=kept(side.passed), failed=kept(side.failed)) for side in sides]
        for sides in blocks
    ]


def _prompts(sides: Sequence[Side]) -> Iterable[Sequence[np.ndarray]]:
    """The responses of each prompt in a block."""
    responses = [[*side.passed, *side.failed] for side in sides]
    return zip(*responses, strict=True) if sides[0].borrowed else responses


def _sorted(names: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order by name and sign, and the start of each."""
    order = np.lexsort((signs, names))
    names, signs = names[order], signs[order]
    return order, np.flatnonzero(
        np.r_[len(order) > 0, (np.diff(names) != 0) | (np.diff(signs) != 0)][: len(order)]
    )


def _dealt(failed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(1 + DEALT, n): the actual labels, then permuted ones."""
    found = np.repeat(failed[None], 1 + DEALT, axis=0)
    found[1:] = rng.permuted(found[1:], axis=1)
    return found


def _part(side: Side) -> _Part:
    n, m = len(side.passed), len(side.failed)
    names, held = np.unique(np.concatenate([*side.passed, *side.failed]), return_counts=True)
    names, held = names[held < n + m], held[held < n + m]  # a feature that all have is uninformative
    trials = np.concatenate([held, n + m - held])
    chances = np.where(trials <= m, _chances(n, m)[np.minimum(trials, m)], 0.0)
    signs = np.repeat(np.array([1, -1], np.int8), len(names))
    return _Part(np.concatenate([names, names]), signs, chances, trials, _moments(n, m)[:, trials], m)


def _failing(side: Side, part: _Part, labels: np.ndarray) -> np.ndarray:
    """(features of `part`, 1 + DEALT): how many of those that have it, or lack it, fail under each
    labelling."""
    responses = [*side.passed, *side.failed]
    names = np.unique(np.concatenate(responses))
    has = np.zeros((len(names), len(responses)), np.float32)
    for place, each in enumerate(responses):
        has[names.searchsorted(each), place] = 1
    has = has[has.sum(axis=1) < len(responses)]
    among = has @ labels.astype(np.float32).T
    return np.vstack([among, part.failed - among])


_POWERS = (0.2, 0.4, 0.6, 0.8, 0.95)
_ODDS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.5)
"""Log odds by which responses with a feature fail more often: one likelihood ratio each."""


def _kept(blocks: Sequence[Sequence[Side]], rng: np.random.Generator, alpha: float) -> Tested:
    """Those that chance does not explain, at `alpha` for all together.

    Uses Chernoff bounds: on the number of prompts in which only failures show it, as independent trials
    with the mean probability; on the same, weighted by the log of each prompt's probability; and on the
    number of failures among all that show it, which is hypergeometric within a prompt. The minimum under
    permuted labels is the threshold (Westfall and Young 1993).
    """
    sides = [
        replace(side, passed=side.passed[:MOST], failed=side.failed[:MOST])
        for block in blocks
        for side in block
    ]
    parts = [_part(side) for side in sides]
    shares = [1 / len(block) for block in blocks for _ in block]
    lengths = [len(part.names) for part in parts]
    share = np.repeat(shares, lengths)
    names, signs, chances, each = (
        np.concatenate([getattr(part, field) for part in parts])
        for field in ("names", "signs", "chances", "trials")
    )
    order, first = _sorted(names, signs)
    weights = -np.log(np.clip(chances, 1e-300, 1.0)) * (chances > 0)

    def summed(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat((values * share)[order], first) if len(first) else np.zeros(0)

    able = summed(weights) >= -np.log(alpha)
    column = np.empty(len(names), np.int64)
    column[order] = np.repeat(np.where(able, np.cumsum(able) - 1, -1), np.diff(np.r_[first, len(names)]))
    expected, trials = summed(chances)[able], summed(chances > 0)[able]
    bounds = [summed(np.log1p(chances ** (1 - power) - chances))[able] for power in _POWERS]
    moments = [
        summed(np.concatenate([part.moments[row] for part in parts]))[able] for row in range(len(_ODDS))
    ]
    seen, shown, inside = (np.zeros((int(able.sum()), 1 + DEALT)) for _ in range(3))
    start = place = 0
    for block in blocks:
        n, m = len(sides[place].passed), len(sides[place].failed)
        labels = _dealt(np.arange(n + m) >= n, rng)
        for _ in block:
            at = slice(start, start + lengths[place])
            columns = column[at]
            kept = columns >= 0
            among = _failing(sides[place], parts[place], labels)[kept]
            hit = among == each[at][kept, None]
            seen[columns[kept]] += hit * shares[place]
            shown[columns[kept]] += hit * (weights[at][kept, None] * shares[place])
            inside[columns[kept]] += among * shares[place]
            start, place = at.stop, place + 1
    p = np.zeros_like(seen)
    for start in range(0, len(p), BLOCK):
        at = slice(start, start + BLOCK)
        bound = tail(seen[at].T, expected[at], trials[at])
        for power, least in zip(_POWERS, bounds, strict=True):
            bound = np.minimum(bound, least[at] - power * shown[at].T)
        for odds, least in zip(_ODDS, moments, strict=True):
            bound = np.minimum(bound, least[at] - odds * inside[at].T)
        p[at] = bound.T
    p[inside < FEWEST] = 0
    reached = p[:, 1:].min(axis=0, initial=0)  # a Gumbel quantile: more stable than an empirical one
    scale = float(reached.std()) * math.sqrt(6) / math.pi
    least = float(reached.mean()) + scale * (float(np.euler_gamma) + math.log(-math.log(1 - alpha)))
    least = min(least, float(reached.min()))
    # Logarithms of p-values: what is r times as unlikely lies log r below.
    good = p[:, 0] < (least if p[:, 0].min(initial=0) < least - math.log(alpha / NOTHING) else -np.inf)
    return Tested(
        names[order][first][able][good], signs[order][first][able][good], seen[good, 0], expected[good]
    )


def _chances(n: int, m: int) -> np.ndarray:
    """By how many of the n + m have it: the probability that all of them are among the m."""
    found = np.ones(m + 1)
    for held in range(1, m + 1):
        found[held] = found[held - 1] * (m - held + 1) / (n + m - held + 1)
    return found


@cache
def _moments(n: int, m: int) -> np.ndarray:
    """(odds, 1 + n + m): by how many of the n + m have it."""
    found = np.zeros((len(_ODDS), 1 + n + m))
    for held in range(1, n + m + 1):
        failing = np.arange(max(0, held - n), min(held, m) + 1)
        ways = np.array([math.comb(m, a) * math.comb(n, held - a) for a in failing.tolist()], float)
        found[:, held] = np.log(np.exp(np.outer(_ODDS, failing)) @ (ways / ways.sum()))
    return found


def tail(seen: np.ndarray, expected: np.ndarray, trials: np.ndarray) -> np.ndarray:
    """Log of the Chernoff bound on at least this many hits in independent trials (Hoeffding 1963)."""
    mean = np.clip(expected / trials, 1e-12, 1 - 1e-12)
    share = np.clip(seen / trials, 0, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = np.where(share > 0, share * np.log(share / mean), 0.0)
        divergence += np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - mean)), 0.0)
    return np.where(share > mean, -trials * divergence, 0.0)
