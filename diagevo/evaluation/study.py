"""What a plan's runs show: each variant against one of them, paired by seed.

Runs of one seed share their starting weights and their validation questions, so a difference is taken within
a seed. The test is Student's paired t over the seeds, two-sided; Holm's correction is over the variants of
the plan, those included that have too few pairs yet. Nothing is read but what the runs recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagevo.errors import NotFoundError, extra
from diagevo.evaluation.ablation import Plan, states
from diagevo.evaluation.protocol import estimate
from diagevo.memory.events import CheckpointEvaluated
from diagevo.memory.history import expect
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log

CONFIDENCE = 0.95
_Figures = tuple[float | None, float | None, float | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class VariantDifference:
    """A variant's score less that of the one it is compared with. None where there are too few pairs."""

    variant: str
    seeds: int
    """Pairs: seeds of which both runs are at their last round."""
    score: float | None
    difference: float | None
    low: float | None
    high: float | None
    """Bounds of the difference by Student's t at `CONFIDENCE`."""
    effect: float | None
    """The difference in standard deviations of the seeds' differences (Cohen's d of pairs)."""
    p: float | None
    p_holm: float | None


def holm(p_values: Mapping[str, float], tests: int) -> dict[str, float]:
    """Holm's step-down correction for so many tests, some of which may not be done yet: these count as the
    largest."""
    corrected: dict[str, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, (tests - rank) * p_values[name]))
        corrected[name] = highest
    return corrected


def compare(
    scores: Mapping[str, Mapping[int, float]], against: str, variants: Sequence[str]
) -> list[VariantDifference]:
    """Every variant against one, from scores by variant and seed."""
    base = scores.get(against, {})
    pairs = {
        name: [(scores[name][seed], base[seed]) for seed in sorted(scores.get(name, {}).keys() & base)]
        for name in variants
        if name != against
    }
    found = {name: _paired([a - b for a, b in both]) for name, both in pairs.items()}
    corrected = holm({name: p for name, (*_, p) in found.items() if p is not None}, len(pairs))
    return [
        VariantDifference(
            name,
            len(both),
            estimate([a for a, _ in both]).value if both else None,
            *found[name],
            p_holm=corrected.get(name),
        )
        for name, both in pairs.items()
    ]


def _paired(differences: Sequence[float]) -> _Figures:
    """Difference, its bounds, effect and p. Of one pair there is a difference and no more; differences that
    are all alike have no deviation to be measured by."""
    if not differences:
        return None, None, None, None, None
    mean = estimate(differences)
    if len(differences) < 2 or mean.standard_error == 0:
        return mean.value, None, None, None, None
    with extra("eval", "a paired comparison"):
        from scipy import stats

    freedom = len(differences) - 1
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * mean.standard_error
    t = mean.value / mean.standard_error
    p = float(2 * stats.t.sf(abs(t), freedom))
    return mean.value, mean.value - half, mean.value + half, t / len(differences) ** 0.5, p


def last_scores(database: Database, plan: Plan, metric: str) -> dict[str, dict[int, float]]:
    """The validation score after the last round of each run that is there, by variant and seed.

    Raises NotFoundError where runs ended and none recorded this metric.
    """
    log = Log(database)
    scores: dict[str, dict[int, float]] = {}
    known: set[str] = set()
    for state in states(database, plan):
        if state.state != "trained":
            continue
        run, last = state.planned.run, (plan.rounds, plan.rounds)
        for recorded in log.read(run, types=[CheckpointEvaluated.__name__], rounds=last):
            event = expect(recorded, CheckpointEvaluated)
            if event.benchmark == "validation" and event.role == "solver":
                known |= event.metrics.keys()
                if metric in event.metrics:
                    scores.setdefault(state.planned.variant, {})[state.planned.seed] = event.metrics[metric]
    if known and not scores:
        raise NotFoundError(
            f"no run of {plan.name} recorded {metric}", hint=f"--metric: one of {', '.join(sorted(known))}"
        )
    return scores
