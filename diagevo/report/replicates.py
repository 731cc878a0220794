"""Which runs are replicates: of the same settings, with other seeds, and without a round in common."""

from collections.abc import Sequence
from itertools import combinations

from diagevo.report.scores import RunResult


def told_apart(label: str, runs: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Runs of one label by row: replicates together, and beside the label what a setting says where it is not
    the same for all. Runs that share rounds or a seed are no replicates: each has a row by its name."""
    every = sorted({key for run in runs for key in run.settings})
    differing = [key for key in every if len({run.settings.get(key) for run in runs}) > 1]
    groups: dict[str, list[RunResult]] = {}
    for run in _without_copies(runs):
        named = [label, *(f"{key} {run.settings.get(key, '–')}" for key in differing)]
        groups.setdefault(", ".join(named), []).append(run)
    rows: dict[str, list[RunResult]] = {}
    for name, members in groups.items():
        if any(a.family & b.family or a.seed == b.seed for a, b in combinations(members, 2)):
            rows |= {f"{name}, run {run.run_id}": [run] for run in members}
        else:
            rows[name] = members
    return rows


def _without_copies(runs: Sequence[RunResult]) -> list[RunResult]:
    """What an untrained model came to is measured once, however many runs began with it or repeat it."""
    kept: list[RunResult] = []
    for run in runs:
        same = (o for o in kept if run.round == o.round == 0 and run.scores == o.scores)
        if next(same, None) is None:
            kept.append(run)
    return kept
