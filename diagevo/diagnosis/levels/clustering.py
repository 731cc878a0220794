"""Groups of failures that the same tested features set apart: average linkage of their cosine distances."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from diagevo.diagnosis.levels.contrast import FEWEST, Signed, Tested

APART = 0.6
"""Mean cosine distance above which two groups of failures stay separate."""
IMPOSSIBLE = 0.7
"""Relative weight of a feature that a failure cannot lack, because not all passes of its prompt have it."""
CHANGE = 2.0
"""Weight of a change in the grouping: like a feature that failures show seven times as often as by chance."""
HALF = 0.5
"""Relative weight of a count feature: any added or omitted step changes it."""
TOGETHER = 0.75
"""Share of common failures from which two features are merged."""
LINKED = 1_500
"""Maximum failures linked with each other: the cost is quadratic. Others join a group or none."""
LEADERS = 12
"""Maximum bundles that may name a group."""
LEAST = 0.015
"""Minimum share of the failures in a group."""


@dataclass(slots=True)
class Groups:
    """Groups of failures that the same features set apart."""

    bundles: list[list[tuple[int, int]]]
    """Co-occurring signed features, name and sign; the first represents the bundle."""
    weights: np.ndarray
    """(bundles,): log of how much more often than by chance it sets failures apart."""
    means: np.ndarray
    """(groups, bundles): mean of the members' rows, over those that can have the bundle."""
    leaders: list[list[int]]
    """The bundles that describe each group, best first."""
    beside: frozenset[int] = frozenset()
    """The bundles that count only in combination with others."""
    _places: dict[int, tuple[np.ndarray, np.ndarray]] = field(init=False)
    _sizes: np.ndarray = field(init=False)
    _added: np.ndarray = field(init=False)
    _alone: np.ndarray = field(init=False)

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
        self._alone = np.array([place not in self.beside for place in range(len(self.bundles))], bool)

    def row(self, marks: Signed) -> tuple[np.ndarray, np.ndarray]:
        """(bundles,): the failure's weighted bundles; and 1 for each that it can have, IMPOSSIBLE for
        others."""
        only, lacks, every = (
            self._counted(names, sign) for names, sign in zip(marks, (1, -1, -1), strict=True)
        )
        found = (only + lacks) >= self._sizes / 2
        if not (found & self._alone).any():
            found[:] = False
        return found * self.weights, np.where(
            found | (self._counted(every, -1) > 0) | self._added, 1.0, IMPOSSIBLE
        )

    def _counted(self, names: np.ndarray, sign: int) -> np.ndarray:
        """(bundles,): how many of its features are among these sorted ones."""
        wanted, places = self._places[sign]
        if not len(names):
            return np.zeros(len(self.bundles), np.int64)
        there = names[np.minimum(names.searchsorted(wanted), len(names) - 1)] == wanted
        return np.bincount(places[there], minlength=len(self.bundles))

    def of(self, row: tuple[np.ndarray, np.ndarray]) -> int | None:
        """The nearest group, if near enough."""
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
    untested: frozenset[int] = frozenset(),
) -> Groups:
    """Groups of failures, from `rows`: of each failure its prompt and its features (`signed`).

    Args:
        found: What sets failures apart.
        rows: In any order.
        fewest: Minimum prompts of a group.
        weak: Names of features that follow from others: they count HALF.
        untested: Names of untested features, which count only in combination with a tested one; alone where
            most failures that show one also show a tested one.
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
    shown: dict[int, list[int]] = defaultdict(list)
    for place, (_, (only, _, _)) in enumerate(rows):
        for name in untested.intersection(only.tolist()):
            shown[name].append(place)
    changes = sorted(
        name for name, places in shown.items() if len({rows[place][0] for place in places}) >= fewest
    )
    first = len(together)
    together += [[(name, 1)] for name in changes]
    weights = np.r_[weights, np.full(len(changes), CHANGE)]

    def looked(beside: Iterable[int]) -> tuple[Groups, list[tuple[np.ndarray, np.ndarray]]]:
        groups = Groups(together, weights, np.zeros((0, len(together))), [], beside=frozenset(beside))
        return groups, [groups.row(marks) for _, marks in rows]

    groups, every = looked(range(first, len(together)))
    tested = np.array([row.any() for row, _ in every])
    seldom = [
        first + at for at, name in enumerate(changes) if 2 * tested[shown[name]].sum() <= len(shown[name])
    ]
    if len(seldom) < len(changes):
        groups, every = looked(seldom)
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
        ranked = [int(each) for each in np.argsort(-overlap, kind="stable")[:LEADERS]]
        groups.leaders.append([each for each in ranked if overlap[each] > 0.2] or ranked[:1])
    return groups


def _distances(rows: np.ndarray, possible: np.ndarray) -> np.ndarray:
    """Cosine distances; for each row only bundles that the other can have count."""
    length = rows**2 @ possible.T
    return 1.0 - rows @ rows.T / np.sqrt(length * length.T)


def alike(rows: Sequence[tuple[int, Signed]], untested: frozenset[int]) -> Groups | None:
    """One group of failures with the same response: it is identified by what no pass has."""
    _, (only, lacks, _) = rows[0]
    keys = [(name, sign) for names, sign in ((only, 1), (lacks, -1)) for name in names.tolist()]
    keys = [key for key in keys if key[0] not in untested]
    one = np.ones((1, 1))
    return Groups([keys], one[0], one, [[0]]) if keys else None


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
    """Merges features that nearly the same failures have."""
    number = held.sum(axis=0).astype(float)
    left = np.ones(held.shape[1], bool)
    found: list[list[int]] = []
    for first in order.tolist():
        if not left[first] or not number[first]:
            continue
        both = held[held[:, first]].sum(axis=0)
        together = (both / (number + number[first] - both) >= TOGETHER) & left
        left &= ~together
        found.append([first, *(each for each in np.flatnonzero(together).tolist() if each != first)])
    return found


def linkage(distance: np.ndarray, apart: float) -> list[np.ndarray]:
    """Groups by average linkage.

    Args:
        distance: (n, n), which is overwritten.
        apart: Mean distance above which two groups stay separate.
    """
    root = list(range(len(distance)))

    def top(each: int) -> int:
        while root[each] != each:
            root[each] = root[root[each]]
            each = root[each]
        return each

    for height, a, b in merges(distance):
        if height < apart:
            root[top(a)] = top(b)
    tops = np.array([top(each) for each in range(len(distance))])
    return [np.flatnonzero(tops == each) for each in np.unique(tops)]


def merges(distance: np.ndarray) -> list[tuple[float, int, int]]:
    """The pairs that average linkage joins, by a chain of nearest neighbours (Murtagh 1983): their mean
    distance and a member of either. `distance` is overwritten."""
    np.fill_diagonal(distance, np.inf)
    alive = np.ones(len(distance), bool)
    size = np.ones(len(distance))
    joins: list[tuple[float, int, int]] = []
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
        joins.append((float(distance[a, b]), a, b))
        joined = (distance[a] * size[a] + distance[b] * size[b]) / (size[a] + size[b])
        size[b] += size[a]
        alive[a] = False
        distance[b], distance[:, b] = joined, joined
        distance[a], distance[:, a] = np.inf, np.inf
        distance[b, b] = np.inf
    return joins
