"""What is measured of a set: modes recovered, adjusted Rand index, location, share of style."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence

from sklearn.metrics import adjusted_rand_score

from benchmarks.causes.rows import LabelledRow

PURE, HELD = 0.6, 0.5
"""A mode is recovered where one cause is so pure, and holds so much of the mode."""


def groups(
    rows: Sequence[LabelledRow], found: Sequence[Hashable | None]
) -> dict[Hashable, list[LabelledRow]]:
    """The failures of each cause; those without one are left out."""
    by_cause: dict[Hashable, list[LabelledRow]] = defaultdict(list)
    for row, cause in zip(rows, found, strict=True):
        if row.failed and cause is not None:
            by_cause[cause].append(row)
    return by_cause


def modes(rows: Sequence[LabelledRow]) -> Counter[str]:
    return Counter(row.label for row in rows if row.failed and row.label)


def recovered(rows: Sequence[LabelledRow], found: Sequence[Hashable | None]) -> list[str]:
    """Modes of which one cause holds at least half, while at least 60% of the cause's failures are of it,
    unplanned ones counted."""
    every, kept = modes(rows), set[str]()
    for failures in groups(rows, found).values():
        for mode, number in Counter(row.label for row in failures if row.label).items():
            if number >= PURE * len(failures) and number >= HELD * every[mode]:
                kept.add(mode)
    return sorted(kept)


def index(rows: Sequence[LabelledRow], found: Sequence[Hashable | None]) -> float | None:
    """Adjusted Rand index over failures that have a label; one without a cause is a group of its own."""
    pairs = [
        (row.label, place if cause is None else ("cause", cause))
        for place, (row, cause) in enumerate(zip(rows, found, strict=True))
        if row.failed and row.label
    ]
    if not pairs:
        return None
    names: dict[Hashable, int] = {}
    labels = [names.setdefault(group, len(names)) for _, group in pairs]
    return float(adjusted_rand_score([label for label, _ in pairs], labels))


def located(rows: Sequence[LabelledRow], lines: Sequence[int | None]) -> dict[str, float]:
    """Shares of the failures whose wrong line is known; a failure of which no line is named is a miss."""
    pairs = [
        (row.wrong_line, line)
        for row, line in zip(rows, lines, strict=True)
        if row.failed and row.wrong_line is not None
    ]
    near = [abs(line - true) for true, line in pairs if line is not None]
    share = {
        f"{name}": sum(away <= most for away in near) / max(len(pairs), 1) for name, most in WITHIN.items()
    }
    return {"n": len(pairs), **share}


WITHIN: Mapping[str, int] = {"exact": 0, "within_1": 1}


def style_only(rows: Sequence[LabelledRow], found: Sequence[Hashable | None]) -> list[Hashable]:
    """Causes of which no mode has 60%, while one way of wording has, at least twice its share of failures."""
    failures = [row for row in rows if row.failed]
    every = Counter(trait for row in failures for trait in set(row.style))
    causes = []
    for cause, held in groups(rows, found).items():
        most = max(Counter(row.label for row in held if row.label).values(), default=0)
        worded = Counter(trait for row in held for trait in set(row.style))
        if most < PURE * len(held) and any(
            number >= PURE * len(held) and number / len(held) >= 2 * every[trait] / len(failures)
            for trait, number in worded.items()
        ):
            causes.append(cause)
    return causes
