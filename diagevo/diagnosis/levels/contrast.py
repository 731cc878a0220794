"""Level 3: what failures have that no passing sibling has, or lack that all have, weighed against chance.

Mined contrast sets (Bay and Pazzani 2001; Monroe et al. 2008), tested exactly: within a prompt the labels
"passed" and "failed" are exchanged, which gives each feature the probability that it would part failures from
passes by chance, with as much harmless variation as the responses have. The prompt is the unit. Features that
cannot reach the level at all are not counted as tests (Tarone 1990).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

ALPHA = 0.02
"""Chance that anything at all is found where labels say nothing."""
MOST = 16
"""Responses a side of a prompt that are tested; all are assigned."""
FEWEST = 4
"""Prompts that a feature must set apart."""


@dataclass(slots=True)
class Tested:
    """Signed features that set failures apart: 1 where only failures have it, -1 where only they lack it."""

    names: np.ndarray
    signs: np.ndarray
    seen: np.ndarray
    """Prompts in which it parts failures from passes."""
    expected: np.ndarray
    """And in how many it would by chance."""
    tests: int = 0


@dataclass(slots=True)
class Side:
    """The features of a prompt's responses, each sorted and once."""

    passed: list[np.ndarray]
    failed: list[np.ndarray]
    borrowed: bool = False
    """The passes are of other prompts: labels are exchanged between prompts, not within."""
    harmless: bool = False
    """And what stands in `failed` passed."""


def signed(side: Side) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each failure the features that no pass has, and those that all have and it lacks."""
    union = np.unique(np.concatenate(side.passed))
    names, number = np.unique(np.concatenate(side.passed), return_counts=True)
    every = names[number == len(side.passed)]
    return [
        (np.setdiff1d(each, union, assume_unique=True), np.setdiff1d(every, each, assume_unique=True))
        for each in side.failed
    ]


def tested(sides: Sequence[Side]) -> Tested:
    """The signed features that labels exchanged do not explain: within their prompts, and, of prompts whose
    passes are borrowed, between them."""
    parts = [
        [_within(side) for side in sides if not side.borrowed],
        _between([side for side in sides if side.borrowed]),
    ]
    given = [part for part in parts if any(len(names) for names, *_ in part)]
    if not given:
        nothing = np.zeros(0)
        return Tested(nothing.astype(np.uint64), nothing.astype(np.int8), nothing, nothing)
    found = [_kept(each, ALPHA / len(given)) for each in given]
    names, signs = (np.concatenate([getattr(each, field) for each in found]) for field in ("names", "signs"))
    seen, expected = (
        np.concatenate([getattr(each, field) for each in found]) for field in ("seen", "expected")
    )
    order = np.lexsort((signs, names))
    first = (
        np.flatnonzero(np.r_[True, (np.diff(names[order]) != 0) | (np.diff(signs[order]) != 0)])
        if len(order)
        else order
    )
    names, signs, seen, expected = names[order], signs[order], seen[order], expected[order]
    if len(first):
        seen, expected = np.add.reduceat(seen, first), np.add.reduceat(expected, first)
    return Tested(names[first], signs[first], seen, expected, max(each.tests for each in found))


_Part = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Names, signs, whether failures alone show it, and the chance of that."""


def _within(side: Side) -> _Part:
    passed, failed = side.passed[:MOST], side.failed[:MOST]
    n, m = len(passed), len(failed)
    both, counts = np.unique(np.concatenate([*passed, *failed]), return_counts=True)
    inside, of_passed = np.unique(np.concatenate(passed), return_counts=True)
    c_passed = np.zeros(len(both), np.int64)
    c_passed[np.searchsorted(both, inside)] = of_passed
    table = _chances(n, m)
    parts: list[_Part] = []
    for sign, held, hit in ((1, counts, c_passed == 0), (-1, n + m - counts, c_passed == n)):
        kept = (held > 0) & (held <= m)
        parts.append((both[kept], np.full(int(kept.sum()), sign, np.int8), hit[kept], table[held[kept]]))
    return _joined(parts)


def _between(sides: Sequence[Side]) -> list[_Part]:
    """Each prompt that shows a signed feature is one that failed, as often as prompts fail."""
    share = sum(not side.harmless for side in sides) / max(len(sides), 1)
    parts: list[_Part] = []
    for side in sides:
        only, lacks = (np.unique(np.concatenate(each)) for each in zip(*signed(side), strict=True))
        for names, sign in ((only, 1), (lacks, -1)):
            number = len(names)
            parts.append(
                (
                    names,
                    np.full(number, sign, np.int8),
                    np.full(number, not side.harmless),
                    np.full(number, share),
                )
            )
    return parts


def _joined(parts: Sequence[_Part]) -> _Part:
    names, signs, hits, chances = zip(*parts, strict=True)
    return np.concatenate(names), np.concatenate(signs), np.concatenate(hits), np.concatenate(chances)


_POWERS = (0.2, 0.4, 0.6, 0.8, 0.95)


def _kept(parts: Sequence[_Part], alpha: float) -> Tested:
    """Those that chance does not explain, at `alpha` for all together.

    Two bounds on the same hits, each by Chernoff: as many as there are, of independent trials with the mean
    chance; and as unlikely as they are, each hit weighed by the logarithm of its own chance.
    """
    names, signs, hits, chances = _joined(parts)
    order = np.lexsort((signs, names))
    names, signs, hits, chances = names[order], signs[order], hits[order], chances[order]
    first = np.flatnonzero(np.r_[True, (names[1:] != names[:-1]) | (signs[1:] != signs[:-1])])
    weights = -np.log(np.clip(chances, 1e-300, 1.0))

    def summed(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, first)

    seen, expected, trials = summed(hits.astype(np.int64)), summed(chances), np.diff(np.r_[first, len(names)])
    p, least = tail(seen, expected, trials), np.minimum(-summed(weights), 0.0)
    shown = summed(weights * hits)
    for power in _POWERS:
        bound = summed(np.log1p(chances ** (1 - power) - chances))
        p = np.minimum(p, bound - power * shown)
    tests = _tarone(np.maximum(least, -700.0), alpha / 2)
    good = (p <= np.log(alpha / 2 / max(tests, 1))) & (seen >= FEWEST)
    return Tested(names[first][good], signs[first][good], seen[good], expected[good], tests)


def _chances(n: int, m: int) -> np.ndarray:
    """By how many of the n + m have it: the chance that all of them are among the m."""
    found = np.ones(m + 1)
    for held in range(1, m + 1):
        found[held] = found[held - 1] * (m - held + 1) / (n + m - held + 1)
    return found


def tail(seen: np.ndarray, expected: np.ndarray, trials: np.ndarray) -> np.ndarray:
    """Logarithm of Chernoff's bound on as many hits or more, of independent trials (Hoeffding 1963)."""
    mean = np.clip(expected / trials, 1e-12, 1 - 1e-12)
    share = np.clip(seen / trials, 0, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = np.where(share > 0, share * np.log(share / mean), 0.0)
        divergence += np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - mean)), 0.0)
    return np.where(share > mean, -trials * divergence, 0.0)


def _tarone(least: np.ndarray, alpha: float) -> int:
    """How many features count as tests: the least k with at most k features that can reach alpha / k."""
    rising = np.sort(least)
    k = 1
    while (able := int(np.searchsorted(rising, np.log(alpha / k), side="right"))) > k:
        k = min(able, 2 * k)
    return k


APART = 0.6
"""Mean cosine distance from which two groups of failures stay apart."""
TOGETHER = 0.75
"""Share of failures in common from which two features are one."""
LINKED = 1_500
"""Failures that are linked with each other: the work grows with the square. Others join a group or none."""
LEAST = 0.015
"""Share of the failures that a group holds, at least."""


@dataclass(slots=True)
class Groups:
    """Groups of failures that the same features set apart."""

    bundles: list[list[tuple[int, int]]]
    """Signed features, name and sign, that go together; the first of each stands for it."""
    weights: np.ndarray
    """(bundles,): how much more often than by chance it sets failures apart, logarithm."""
    means: np.ndarray
    """(groups, bundles): mean of the members' rows, each of length 1."""
    leaders: list[list[int]]
    """Of each group the bundles that describe it, best first."""
    _places: dict[tuple[int, int], int] = field(init=False)
    _sizes: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._places = {key: number for number, keys in enumerate(self.bundles) for key in keys}
        self._sizes = np.array([len(keys) for keys in self.bundles], float)

    def row(self, only: np.ndarray, lacks: np.ndarray) -> np.ndarray:
        """(bundles,): the failure's bundles, weighed, of length 1; zeros where it has none."""
        counted = np.zeros(len(self.bundles))
        for names, sign in ((only, 1), (lacks, -1)):
            for name in names.tolist():
                place = self._places.get((name, sign))
                if place is not None:
                    counted[place] += 1
        found = (counted >= self._sizes / 2) * self.weights
        length = float(np.linalg.norm(found))
        return found / length if length else found

    def of(self, row: np.ndarray) -> int | None:
        """The group that is nearest on average, where it is near enough."""
        if not len(self.means) or not row.any():
            return None
        cosines = self.means @ row
        best = int(cosines.argmax())
        return best if cosines[best] >= 1 - APART else None


def grouped(
    found: Tested, rows: Sequence[tuple[int, np.ndarray, np.ndarray]], *, fewest: int = FEWEST
) -> Groups:
    """Groups of failures, from `rows`: of each failure its prompt, the features that only it has and those
    that it lacks (`signed`)."""
    keys = list(zip(found.names.tolist(), found.signs.tolist(), strict=True))
    held = _incidence(keys, rows)
    order = np.argsort(-(found.seen - found.expected), kind="stable")
    bundles = _bundles(held, order)
    leaders = [places[0] for places in bundles]
    weights = (
        np.log(found.seen[leaders] / np.maximum(found.expected[leaders], 0.3)) if leaders else np.zeros(0)
    )
    together = [[keys[each] for each in places] for places in bundles]
    groups = Groups(together, np.maximum(weights, 0.1), np.zeros((0, len(bundles))), [])
    matrix = (
        np.array([groups.row(only, lacks) for _, only, lacks in rows])
        if rows
        else np.zeros((0, len(bundles)))
    )
    able = np.flatnonzero(matrix.any(axis=1)) if len(matrix) else np.zeros(0, np.int64)
    linked = able[:: -(-len(able) // LINKED)] if len(able) else able
    prompts = np.array([prompt for prompt, _, _ in rows])
    for places_ in linkage(matrix[linked], APART):
        members = linked[places_]
        if len(members) < LEAST * len(linked) or len(set(prompts[members].tolist())) < fewest:
            continue
        groups.means = np.vstack([groups.means, matrix[members].mean(axis=0)])
    own = [groups.of(row) for row in matrix]
    for number in range(len(groups.means)):
        members = np.array([each == number for each in own])
        has = matrix > 0
        both = (has & members[:, None]).sum(axis=0)
        overlap = 2 * both / np.maximum(members.sum() + has.sum(axis=0), 1)
        ranked = [int(each) for each in np.argsort(-overlap, kind="stable")[:4]]
        groups.leaders.append([each for each in ranked if overlap[each] > 0.3] or ranked[:1])
    return groups


def most(rows: Sequence[tuple[int, np.ndarray, np.ndarray]]) -> Groups | None:
    """Where prompts are too few to test anything: the features that most prompts' failures share, as one
    group. None where failures share nothing with another one."""
    shown: dict[tuple[int, int], set[int]] = {}
    times: dict[tuple[int, int], int] = {}
    for prompt, only, lacks in rows:
        for names, sign in ((only, 1), (lacks, -1)):
            for name in names.tolist():
                shown.setdefault((name, sign), set()).add(prompt)
                times[name, sign] = times.get((name, sign), 0) + 1
    prompts = len({prompt for prompt, _, _ in rows})
    ranked = sorted(shown, key=lambda key: (-len(shown[key]), -times[key], -key[1], key[0]))
    best = [key for key in ranked if 2 * len(shown[key]) > prompts and times[key] > 1]
    if not best:
        return None
    top = [key for key in best if (len(shown[key]), times[key]) == (len(shown[best[0]]), times[best[0]])]
    one = np.ones((1, 1))
    return Groups([top], one[0], one, [[0]])


def _incidence(
    keys: Sequence[tuple[int, int]], rows: Sequence[tuple[int, np.ndarray, np.ndarray]]
) -> np.ndarray:
    """(failures, features) of bool."""
    held = np.zeros((len(rows), len(keys)), bool)
    column = {key: place for place, key in enumerate(keys)}
    wanted = {sign: np.array(sorted(name for name, s in keys if s == sign), np.uint64) for sign in (1, -1)}
    for place, (_, only, lacks) in enumerate(rows):
        for names, sign in ((only, 1), (lacks, -1)):
            for name in np.intersect1d(names, wanted[sign], assume_unique=True).tolist():
                held[place, column[name, sign]] = True
    return held


def _bundles(held: np.ndarray, order: np.ndarray) -> list[list[int]]:
    """Features that nearly the same failures have are one."""
    number = held.sum(axis=0).astype(float)
    left = np.ones(held.shape[1], bool)
    found: list[list[int]] = []
    for first in order.tolist():
        if not left[first] or not number[first]:
            continue
        both = held[held[:, first]].sum(axis=0)
        together = (both / (number + number[first] - both) >= TOGETHER) & left
        together[first] = True
        left &= ~together
        found.append([first, *(each for each in np.flatnonzero(together).tolist() if each != first)])
    return found


def linkage(rows: np.ndarray, apart: float) -> list[np.ndarray]:
    """Groups by average linkage over cosine distances, by a chain of nearest neighbours (Murtagh 1983).

    Args:
        rows: (n, d), of length 1.
        apart: Mean distance from which two groups stay apart.
    """
    if not len(rows):
        return []
    distance = 1.0 - rows @ rows.T
    np.fill_diagonal(distance, np.inf)
    alive = np.ones(len(rows), bool)
    size = np.ones(len(rows))
    merges: list[tuple[float, int, int]] = []
    chain: list[int] = []
    for _ in range(len(rows) - 1):
        if not chain:
            chain = [int(alive.argmax())]
        while True:
            last = chain[-1]
            near = int(distance[last].argmin())
            if len(chain) > 1 and distance[last, chain[-2]] <= distance[last, near]:
                near = chain[-2]
                break
            chain.append(near)
        a, b = chain.pop(), chain.pop()
        merges.append((float(distance[a, b]), a, b))
        joined = (distance[a] * size[a] + distance[b] * size[b]) / (size[a] + size[b])
        size[b] += size[a]
        alive[a] = False
        distance[b], distance[:, b] = joined, joined
        distance[a], distance[:, a] = np.inf, np.inf
        distance[b, b] = np.inf
    root = list(range(len(rows)))

    def top(each: int) -> int:
        while root[each] != each:
            root[each] = root[root[each]]
            each = root[each]
        return each

    for height, a, b in merges:
        if height < apart:
            root[top(a)] = top(b)
    tops = np.array([top(each) for each in range(len(rows))])
    return [np.flatnonzero(tops == each) for each in np.unique(tops)]
