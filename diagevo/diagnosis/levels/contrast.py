"""Level 3: what failures have that no passing sibling has, or lack that all have, weighed against chance.

Mined contrast sets (Bay and Pazzani 2001; Monroe et al. 2008), tested exactly: within a prompt the labels
"passed" and "failed" are exchanged, which gives each feature the probability that it would part failures from
passes by chance, with as much harmless variation as the responses have. The prompt is the unit. What the best
feature reaches where labels are dealt anew is the threshold for all (Westfall and Young 1993).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

ALPHA = 0.02
"""Chance that anything at all is found where labels say nothing."""
DEALT = 99
"""How often the labels are dealt anew."""
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


@dataclass(slots=True)
class Side:
    """The features of a prompt's responses, each sorted and once."""

    passed: list[np.ndarray]
    failed: list[np.ndarray]
    borrowed: bool = False
    """The passes are of other prompts: labels are exchanged between prompts, not within."""
    harmless: bool = False
    """And what stands in `failed` passed."""


Signed = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Of a failure the features that no pass has, those that all have and it lacks, and those that all have."""


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


def tested(sides: Sequence[Side]) -> Tested:
    """The signed features that labels exchanged do not explain: within their prompts, and, of prompts whose
    passes are borrowed, between them."""
    rng = np.random.default_rng(0)
    own, borrowed = ([side for side in sides if side.borrowed is each] for each in (False, True))
    labels = _dealt(np.array([not side.harmless for side in borrowed]), rng)
    ways: list[tuple[list[_Part], Callable[[int], np.ndarray]]] = [
        ([_within(side) for side in own], lambda place: _hits(own[place], rng)),
        (_between(borrowed), lambda place: labels[:, place, None]),
    ]
    given = [(parts, hits) for parts, hits in ways if any(len(names) for names, *_ in parts)]
    if not given:
        nothing = np.zeros(0)
        return Tested(nothing.astype(np.uint64), nothing.astype(np.int8), nothing, nothing)
    found = [_kept(parts, hits, ALPHA / len(given)) for parts, hits in given]
    names, signs, seen, expected = (
        np.concatenate([getattr(each, field) for each in found])
        for field in ("names", "signs", "seen", "expected")
    )
    order, first = _sorted(names, signs)
    if len(first):
        seen, expected = np.add.reduceat(seen[order], first), np.add.reduceat(expected[order], first)
    return Tested(names[order][first], signs[order][first], seen, expected)


_Part = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Names, signs, and the chance that failures alone show it."""


def _sorted(names: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order by name and sign, and where in it each begins."""
    order = np.lexsort((signs, names))
    names, signs = names[order], signs[order]
    return order, np.flatnonzero(
        np.r_[len(order) > 0, (np.diff(names) != 0) | (np.diff(signs) != 0)][: len(order)]
    )


def _dealt(failed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(1 + DEALT, n): the labels as they are, then dealt anew."""
    found = np.repeat(failed[None], 1 + DEALT, axis=0)
    found[1:] = rng.permuted(found[1:], axis=1)
    return found


def _within(side: Side) -> _Part:
    passed, failed = side.passed[:MOST], side.failed[:MOST]
    n, m = len(passed), len(failed)
    names, held = np.unique(np.concatenate([*passed, *failed]), return_counts=True)
    table = _chances(n, m)
    kept, lacking = held <= m, (held < n + m) & (held >= n)
    signs = np.repeat(np.array([1, -1], np.int8), [kept.sum(), lacking.sum()])
    chances = np.concatenate([table[held[kept]], table[n + m - held[lacking]]])
    return np.concatenate([names[kept], names[lacking]]), signs, chances


def _hits(side: Side, rng: np.random.Generator) -> np.ndarray:
    """(1 + DEALT, features of `_within`): whether failures alone show it, by the labels."""
    responses = [*side.passed[:MOST], *side.failed[:MOST]]
    n = len(side.passed[:MOST])
    names = np.unique(np.concatenate(responses))
    has = np.zeros((len(responses), len(names)), np.float32)
    for place, each in enumerate(responses):
        has[place, np.searchsorted(names, each)] = 1
    m, held = len(responses) - n, has.sum(axis=0)
    among = _dealt(np.arange(n + m) >= n, rng).astype(np.float32) @ has
    kept, lacking = held <= m, (held < n + m) & (held >= n)
    return np.hstack([among[:, kept] == held[kept], n + among[:, lacking] == held[lacking]])


def _between(sides: Sequence[Side]) -> list[_Part]:
    """Each prompt that shows a signed feature is one that failed, as often as prompts fail."""
    share = sum(not side.harmless for side in sides) / max(len(sides), 1)
    parts: list[_Part] = []
    for side in sides:
        only, lacks, _ = (np.unique(np.concatenate(each)) for each in zip(*signed(side), strict=True))
        signs = np.repeat(np.array([1, -1], np.int8), [len(only), len(lacks)])
        parts.append((np.concatenate([only, lacks]), signs, np.full(len(signs), share)))
    return parts


_POWERS = (0.2, 0.4, 0.6, 0.8, 0.95)


def _kept(parts: Sequence[_Part], hits: Callable[[int], np.ndarray], alpha: float) -> Tested:
    """Those that chance does not explain, at `alpha` for all together.

    Two bounds on the same hits, each by Chernoff: as many as there are, of independent trials with the mean
    chance; and as unlikely as they are, each hit weighed by the logarithm of its own chance. The least that
    is found where labels are dealt anew is the threshold (Westfall and Young 1993).
    """
    names, signs, chances = (np.concatenate(each) for each in zip(*parts, strict=True))
    order, first = _sorted(names, signs)
    weights = -np.log(np.clip(chances, 1e-300, 1.0))

    def summed(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values[order], first)

    trials = np.diff(np.r_[first, len(names)])
    able = (trials >= FEWEST) & (summed(weights) >= -np.log(alpha))
    expected, trials = summed(chances)[able], trials[able]
    bounds = [summed(np.log1p(chances ** (1 - power) - chances))[able] for power in _POWERS]
    column = np.empty(len(names), np.int64)
    column[order] = np.repeat(np.where(able, np.cumsum(able) - 1, -1), np.diff(np.r_[first, len(names)]))
    seen, shown = (np.zeros((1 + DEALT, int(able.sum()))) for _ in range(2))
    start = 0
    for place, part in enumerate(parts):
        columns, weight = column[start : start + len(part[0])], weights[start : start + len(part[0])]
        start += len(part[0])
        kept = columns >= 0
        hit = np.broadcast_to(hits(place), (1 + DEALT, len(kept)))[:, kept]
        seen[:, columns[kept]] += hit
        shown[:, columns[kept]] += hit * weight[kept]
    p = tail(seen, expected, trials)
    for power, bound in zip(_POWERS, bounds, strict=True):
        p = np.minimum(p, bound - power * shown)
    p[seen < FEWEST] = 0
    reached = p[1:].min(axis=1, initial=0)  # a Gumbel distribution's quantile: steadier than one of them
    scale = float(reached.std()) * math.sqrt(6) / math.pi
    least = float(reached.mean()) + scale * (float(np.euler_gamma) + math.log(-math.log(1 - alpha)))
    good = p[0] < least
    return Tested(
        names[order][first][able][good], signs[order][first][able][good], seen[0][good], expected[good]
    )


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


APART = 0.6
"""Mean cosine distance from which two groups of failures stay apart."""
IMPOSSIBLE = 0.7
"""What a feature counts, for 1, that a failure cannot lack: not all passes of its prompt have it."""
CHANGE = 2.0
"""What a change counts in the grouping: as what failures show seven times as often as by chance."""
HALF = 0.5
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
    """(groups, bundles): mean of the members' rows, over those that can have the bundle."""
    leaders: list[list[int]]
    """Of each group the bundles that describe it, best first."""
    told: int = 0
    """How many of the bundles, at the end, count only beside others."""
    _places: dict[int, tuple[np.ndarray, np.ndarray]] = field(init=False)
    _sizes: np.ndarray = field(init=False)
    _added: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        placed = [(*key, number) for number, keys in enumerate(self.bundles) for key in keys]
        self._places = {
            each: (
                np.array([name for name, sign, _ in placed if sign == each], np.uint64),
                np.array([number for _, sign, number in placed if sign == each], np.int64),
            )
            for each in (1, -1)
        }
        self._sizes = np.array([len(keys) for keys in self.bundles], float)
        self._added = np.array([keys[0][1] > 0 for keys in self.bundles])

    def row(self, marks: Signed) -> tuple[np.ndarray, np.ndarray]:
        """(bundles,): the failure's, weighed; and 1 for each that it can have, IMPOSSIBLE for others."""
        only, lacks, every = (
            self._counted(names, sign) for names, sign in zip(marks, (1, -1, -1), strict=True)
        )
        found = (only + lacks) >= self._sizes / 2
        if not found[: len(found) - self.told].any():
            found[:] = False
        return found * self.weights, np.where(
            found | (self._counted(every, -1) > 0) | self._added, 1.0, IMPOSSIBLE
        )

    def _counted(self, names: np.ndarray, sign: int) -> np.ndarray:
        """(bundles,): how many of its features are among these, which are sorted."""
        wanted, places = self._places[sign]
        if not len(names):
            return np.zeros(len(self.bundles), np.int64)
        there = names[np.minimum(names.searchsorted(wanted), len(names) - 1)] == wanted
        return np.bincount(places[there], minlength=len(self.bundles))

    def of(self, row: tuple[np.ndarray, np.ndarray]) -> int | None:
        """The group that is nearest, where it is near enough."""
        found, able = row
        if not len(self.means) or not found.any():
            return None
        cosines = self.means @ found / np.sqrt((found**2).sum() * (self.means**2 @ able))
        best = int(cosines.argmax())
        return best if cosines[best] >= 1 - APART else None


def grouped(
    found: Tested,
    rows: Sequence[tuple[int, Signed]],
    *,
    fewest: int = FEWEST,
    weak: frozenset[int] = frozenset(),
    told: frozenset[int] = frozenset(),
) -> Groups:
    """Groups of failures, from `rows`: of each failure its prompt and its features (`signed`).

    Args:
        found: What sets failures apart.
        rows: In any order.
        fewest: Prompts of a group.
        weak: Names of features that follow from others: they count HALF.
        told: Names of features that are not tested, and so count only beside one that is.
    """
    keys = list(zip(found.names.tolist(), found.signs.tolist(), strict=True))
    held = _incidence(keys, [marks for _, marks in rows])
    order = np.argsort(-(found.seen - found.expected), kind="stable")
    bundles = _bundles(held, order)
    leaders = [places[0] for places in bundles]
    weights = np.log(found.seen[leaders] / np.maximum(found.expected[leaders], 0.3))
    together = [[keys[each] for each in places] for places in bundles]
    follows = np.array([all(name in weak for name, _ in each) for each in together])
    weights = np.maximum(weights, 0.1) * np.where(follows, HALF, 1.0)
    prompts_of: dict[int, set[int]] = defaultdict(set)
    for prompt, (only, _, _) in rows:
        for name in told.intersection(only.tolist()):
            prompts_of[name].add(prompt)
    changes = sorted(name for name, shown in prompts_of.items() if len(shown) >= fewest)
    together += [[(name, 1)] for name in changes]
    weights = np.r_[weights, np.full(len(changes), CHANGE)]
    groups = Groups(together, weights, np.zeros((0, len(together))), [], told=len(changes))
    every = [groups.row(marks) for _, marks in rows]
    matrix, possible = (np.array([row[part] for row in every]).reshape(-1, len(together)) for part in (0, 1))
    able = np.flatnonzero(matrix.any(axis=1))
    linked = able[:: -(-len(able) // LINKED)] if len(able) else able
    prompts = np.array([prompt for prompt, _ in rows])
    means: list[np.ndarray] = []
    for places in linkage(_distances(matrix[linked], possible[linked]), APART):
        members = linked[places]
        if len(members) >= LEAST * len(linked) and len(set(prompts[members].tolist())) >= fewest:
            means.append(matrix[members].sum(axis=0) / possible[members].sum(axis=0))
    groups.means = np.array(means).reshape(-1, len(together))
    own = np.array([-1 if (place := groups.of(row)) is None else place for row in every])
    has = matrix > 0
    for number in range(len(means)):
        members = own == number
        both = (has & members[:, None]).sum(axis=0)
        overlap = 2 * both / np.maximum(members.sum() + has.sum(axis=0), 1)
        ranked = [int(each) for each in np.argsort(-overlap, kind="stable")[:4]]
        groups.leaders.append([each for each in ranked if overlap[each] > 0.3] or ranked[:1])
    return groups


def _distances(rows: np.ndarray, possible: np.ndarray) -> np.ndarray:
    """Cosine distances; of each row counts what the other can have."""
    length = rows**2 @ possible.T
    return 1.0 - rows @ rows.T / np.sqrt(length * length.T)


def most(rows: Sequence[tuple[int, Signed]]) -> Groups | None:
    """Where prompts are too few to test anything: the features that most prompts' failures share, as one
    group. None where failures share nothing with another one."""
    shown: dict[tuple[int, int], set[int]] = {}
    times: dict[tuple[int, int], int] = {}
    for prompt, (only, lacks, _) in rows:
        for names, sign in ((only, 1), (lacks, -1)):
            for name in names.tolist():
                shown.setdefault((name, sign), set()).add(prompt)
                times[name, sign] = times.get((name, sign), 0) + 1
    prompts = len({prompt for prompt, _ in rows})
    ranked = sorted(shown, key=lambda key: (-len(shown[key]), -times[key], -key[1], key[0]))
    best = [key for key in ranked if 2 * len(shown[key]) > prompts and times[key] > 1]
    if not best:
        return None
    top = [key for key in best if (len(shown[key]), times[key]) == (len(shown[best[0]]), times[best[0]])]
    one = np.ones((1, 1))
    return Groups([top], one[0], one, [[0]])


def _incidence(keys: Sequence[tuple[int, int]], rows: Sequence[Signed]) -> np.ndarray:
    """(failures, features) of bool."""
    held = np.zeros((len(rows), len(keys)), bool)
    column = {key: place for place, key in enumerate(keys)}
    wanted = {sign: np.array(sorted(name for name, s in keys if s == sign), np.uint64) for sign in (1, -1)}
    for place, (only, lacks, _) in enumerate(rows):
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


def linkage(distance: np.ndarray, apart: float) -> list[np.ndarray]:
    """Groups by average linkage, by a chain of nearest neighbours (Murtagh 1983).

    Args:
        distance: (n, n), which is overwritten.
        apart: Mean distance from which two groups stay apart.
    """
    if not len(distance):
        return []
    np.fill_diagonal(distance, np.inf)
    alive = np.ones(len(distance), bool)
    size = np.ones(len(distance))
    merges: list[tuple[float, int, int]] = []
    chain: list[int] = []
    for _ in range(len(distance) - 1):
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
    root = list(range(len(distance)))

    def top(each: int) -> int:
        while root[each] != each:
            root[each] = root[root[each]]
            each = root[each]
        return each

    for height, a, b in merges:
        if height < apart:
            root[top(a)] = top(b)
    tops = np.array([top(each) for each in range(len(distance))])
    return [np.flatnonzero(tops == each) for each in np.unique(tops)]
