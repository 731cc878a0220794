"""Many runs side by side: curves coloured by settings, and runs with different settings paired by seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from diagevo.errors import MissingDependencyError
from diagevo.evaluation.protocol import PairedDifference, paired_difference
from diagevo.memory.compare.method_settings import method
from diagevo.memory.history import History
from diagevo.memory.read.pass_rates import steps
from diagevo.memory.read.round_figures import MEAN, validations
from diagevo.memory.read.runs import RunLine
from diagevo.view.charts import Chart, Series, chart

DRAWN = 12
"""Runs whose curves are shown by default: the most recently written."""
KEYS = 3
"""Maximum settings that name an arm."""


@dataclass(frozen=True, slots=True)
class Arm:
    """Runs with the same settings, by seed."""

    name: str
    style: int
    runs: dict[int, str]


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two arms over the seeds that both have, at the last round that all of these measured."""

    first: Arm
    second: Arm
    seeds: int
    round: int
    means: tuple[float, float]
    difference: PairedDifference | None
    """None for a single seed, or if the extra for it is missing."""


@dataclass(frozen=True, slots=True)
class Many:
    """The part of the page of runs below the list."""

    charts: tuple[Chart, ...]
    arms: tuple[Arm, ...]
    pairings: tuple[Pairing, ...]
    lacking: str | None
    """Why there is no interval."""
    chosen: frozenset[str]
    """Runs whose curves are shown at first."""

    def style(self, run: str) -> int | None:
        """The style number of a run's curve; None if it has none."""
        named = (style for one in self.charts for name, style in one.names if name == run)
        return next(named, None)


def many(histories: Sequence[tuple[History, RunLine]]) -> Many:
    """Runs with their lines, most recently written first."""
    arms = list(_arms([history for history, line in histories if line.ingested is None and line.rounds]))
    style = {run: arm.style for arm in arms for run in arm.runs.values()} if len(arms) > 1 else {}
    scores: dict[str, dict[int, float]] = {}
    for history, line in histories:
        if line.ingested is None:
            means = {n: one[MEAN] for n, one in validations(history).items() if MEAN in one}
            if means:
                scores[history.run_id] = means
    passed: dict[str, dict[int, float]] = {}
    for history, line in histories:
        if line.ingested is not None:
            passed[history.run_id] = {one.step: one.pass_rate for one in steps(history)}
    drawn = (
        _chart("Accuracy on held-out questions (mean@k), by round", scores, style, "round"),
        _chart("Rollouts that passed, by step", passed, {}, "step"),
    )
    pairings: list[Pairing] = []
    lacking = None
    for first, second in combinations(arms, 2):
        try:
            pairings += _paired(first, second, scores, interval=lacking is None)
        except MissingDependencyError as error:
            lacking = f"{error.message}: no intervals. {error.hint}"
            pairings += _paired(first, second, scores, interval=False)
    charts = tuple(one for one in drawn if one is not None)
    chosen = frozenset(line.run_id for _, line in histories[:DRAWN])
    return Many(charts, tuple(arms), tuple(pairings), lacking, chosen)


def _chart(title: str, values: dict[str, dict[int, float]], style: dict[str, int], over: str) -> Chart | None:
    """One curve per run; None if all have a single point."""
    places = sorted({place for found in values.values() for place in found})
    if len(places) < 2:
        return None
    lines = [
        Series(run, [found.get(place) for place in places], style.get(run, n))
        for n, (run, found) in enumerate(values.items())
    ]
    return chart(title, places, lines, percent=True, over=over)


def _arms(histories: Sequence[History]) -> Iterator[Arm]:
    """By the settings that differ between runs. Runs with the same seed and settings are separate arms."""
    settings = {one.run_id: method(one, one.commits[-1].round) for one in histories}
    differing = [
        key
        for key in sorted({key for found in settings.values() for key in found})
        if len({found.get(key) for found in settings.values()}) > 1
    ]
    groups: dict[tuple[str | None, ...], list[tuple[int, str]]] = {}
    for one in reversed(histories):  # oldest first
        values = tuple(settings[one.run_id].get(key) for key in differing)
        seed = int(one.configuration().config.get("seed", 0))
        groups.setdefault(values, []).append((seed, one.run_id))
    style = 0
    for values, runs in groups.items():
        named = [f"{key} {value}" for key, value in zip(differing, values, strict=True)]
        name = ", ".join(named[:KEYS]) + (f" and {len(named) - KEYS} more" if len(named) > KEYS else "")
        by_seed = dict(runs)
        if len(by_seed) == len(runs):
            yield Arm(name or "the same settings", style, by_seed)
            style += 1
            continue
        for seed, run in runs:
            yield Arm(f"{name}, run {run}" if name else run, style, {seed: run})
            style += 1


def _paired(
    first: Arm, second: Arm, scores: dict[str, dict[int, float]], *, interval: bool
) -> Iterator[Pairing]:
    pairs = [
        (scores[first.runs[seed]], scores[second.runs[seed]])
        for seed in sorted(first.runs.keys() & second.runs.keys())
        if first.runs[seed] in scores and second.runs[seed] in scores
    ]
    common = set.intersection(*(set(found) for pair in pairs for found in pair)) if pairs else set[int]()
    if not common:
        return
    last = max(common)
    a, b = [one[last] for one, _ in pairs], [two[last] for _, two in pairs]
    yield Pairing(
        first,
        second,
        len(pairs),
        last,
        (sum(a) / len(a), sum(b) / len(b)),
        paired_difference(a, b) if interval and len(pairs) > 1 else None,
    )
