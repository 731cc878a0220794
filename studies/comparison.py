"""Each arm of the study against the full method, and what that says of a claim."""

from collections.abc import Mapping, Sequence
from functools import cache
from math import log
from statistics import correlation, fmean, linear_regression, mean
from typing import Any

import numpy as np

from diagevo.evaluation.ablation import VARIANTS, VariantDifference, compare
from diagevo.text.numbers import count
from studies.results import BESIDE, arm_of, plan_of

Rows = Sequence[Mapping[str, Any]]
BASE = "base"
"""The arm of a row of untouched weights."""
SCORE, APART = "mean_at_k", "tail less head"
Claim = tuple[str, str, str, str, str]
H14 = ("r-zero", "no-stitching", "random-stitching", "absolute-only", "frozen-challenger")
H14 += ("fixed-7-3", "fixed-5-5", "fixed-3-7", "k-0.2", "k-1.0", "k-2.0", "tau-1.2", "tau-2.0")
SAID, NEW = "the same", "not measured"
CLAIMS: tuple[Claim, ...] = (
    ("H1", "free-only", SCORE, "below", SAID),
    ("H2", "free-only", APART, "below", NEW),
    ("H3", "free-640", SCORE, "not below", NEW),
    ("H4", "targeted-only", SCORE, "not below", "below"),
    ("H5", "no-filter", SCORE, "above", "below"),
    ("H5", "no-filter-4-steps", SCORE, "not above", NEW),
    ("H6", "no-state-updates", SCORE, "below", SAID),
    ("H7", "free-only", "greedy", "no difference", NEW),
    ("H8", "placebo", SCORE, "below", NEW),
    ("H9", "true-labels", SCORE, "above", NEW),
    ("H9", "true-labels", "greedy", "above", NEW),
    ("H10", "free-800", SCORE, "not below", NEW),
    *(("H11", name, SCORE, "no difference", NEW) for name in ("learnability", "bandit")),
    *(("H12", name, SCORE, "no difference", NEW) for name in ("promotion-3", "promotion-5")),
    ("H13", "free-only, ten rounds", SCORE, "below", NEW),
    ("H15", "free-only, other weights", SCORE, "below", NEW),
    ("H15", "free-only, other weights", "greedy", "below", NEW),
    *(("H14", name, SCORE, "below", SAID) for name in H14),
)
"""Hypothesis, variant, metric, what is expected of it against the full method, and what the paper says."""


def scores(runs: list[dict[str, Any]], metric: str) -> dict[str, dict[int, float]]:
    """After the last round, by variant and seed; a run that is under way has none."""
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        last = run["scores"].get(str(run["of"]), {})
        if metric == APART and f"{SCORE}/tail" in last:
            value = last[f"{SCORE}/tail"] - last[f"{SCORE}/head"]
        elif metric in last:
            value = last[metric]
        else:
            continue
        found.setdefault(arm_of(run), {})[run["seed"]] = value
    return found


def against_full(runs: list[dict[str, Any]], metric: str) -> dict[str, VariantDifference]:
    """Every variant of the three plans, played or not; Holm counts those of each plan."""
    by_name = scores(runs, metric)
    smaller = tuple(BESIDE.values())
    main = {name: of for name, of in by_name.items() if not name.endswith(smaller)}
    found = {line.variant: line for line in compare(main, "full", [v.name for v in VARIANTS])}
    for suffix in smaller:
        arms = {name.removesuffix(suffix): of for name, of in by_name.items() if name.endswith(suffix)}
        found |= {line.variant + suffix: line for line in compare(arms, "full", ["full", "free-only"])}
    return found


def sign_flip(differences: Sequence[float]) -> float | None:
    """The exact two-sided p of paired differences: the share of all assignments of signs whose mean is at
    least as far from 0. Of n pairs it is 2/2ⁿ at least: .25 of three, .0625 of five. None of fewer than 2."""
    if len(differences) < 2:
        return None
    first, second = (_signed_sums(differences[half::2]) for half in (0, 1))
    least = abs(sum(differences)) * (1 - 1e-12)
    if not least:
        return 1.0
    # Forty pairs have 2⁴⁰ assignments: each of one half is counted against the sorted ones of the other.
    above = len(second) - np.searchsorted(second, least - first, side="left")
    below = np.searchsorted(second, -least - first, side="right")
    return float((above.sum() + below.sum()) / 2 ** len(differences))


def _signed_sums(differences: Sequence[float]) -> np.ndarray:
    """From the least up; a stable sort merges two sorted halves in one pass."""
    sums = np.zeros(1)
    for difference in differences:
        sums = np.sort(np.concatenate([sums + difference, sums - difference]), kind="stable")
    return sums


def exact_interval(differences: Sequence[float], level: float = 0.05) -> tuple[float, float] | None:
    """The shifts that the exact sign-flip test does not refuse at this level; None where it can refuse none:
    of n pairs its p is 2/2ⁿ at least."""
    return None if 2 / 2 ** len(differences) > level else _not_refused(tuple(differences), level)


@cache
def _not_refused(differences: tuple[float, ...], level: float) -> tuple[float, float]:
    centre, far = fmean(differences), max(map(abs, differences)) * 2 + 1e-9

    def bound(refused: float) -> float:
        kept = centre
        while abs(refused - kept) > far * 1e-12:
            middle = (kept + refused) / 2
            p = sign_flip([each - middle for each in differences])
            kept, refused = (middle, refused) if p is not None and p > level else (kept, middle)
        return kept

    return bound(centre - far), bound(centre + far)


def paired(rows: Rows, arm: str, against: str, metric: str) -> list[float]:
    """Differences by seed, of the seeds that both arms were played with from the same weights. The base has
    none: each run is held against the weights that it began from."""
    if against == BASE:
        return [row[metric] - base_of(rows, row)[metric] for row in rows if row["arm"] == arm]
    of = {(row["arm"], row["seed"], digest_of(row)): row[metric] for row in rows if row["arm"] != BASE}
    return [
        of[arm, seed, digest] - of[against, seed, digest]
        for name, seed, digest in sorted(of)
        if name == arm and (against, seed, digest) in of
    ]


def base_of(rows: Rows, run: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of the untouched weights that a run began from."""
    of = [row for row in rows if row["arm"] == BASE and row["weights"] == run["weights"]]
    return next(row for row in of if digest_of(run) in ("", digest_of(row)))


def digest_of(row: Mapping[str, Any]) -> str:
    """SHA-256 of the weights that a run began from; the first studies have none."""
    return row.get("weights_sha256", "")


def exactly(differences: Sequence[float], margin: float | None = None) -> str:
    """A mean difference with its exact interval and what that carries; without one where there are too few
    pairs."""
    bounds, pairs = exact_interval(differences), len(differences)
    if bounds is None:
        return f"{fmean(differences):+.3f} ({count(pairs, 'seed')}, too few for an exact interval)"
    return report(fmean(differences), bounds, "exact", pairs, finding(*bounds, margin))


def row_of_contrast(arm: str, metric: str, differences: Sequence[float]) -> str:
    """A line of a table: the difference, its exact interval, the exact p and the pairs."""
    p, bounds = sign_flip(differences), exact_interval(differences)
    interval = "–" if bounds is None else f"{signed(bounds[0])} to {signed(bounds[1])}"
    shown = "–" if p is None else f"{p:.4f}"
    return f"| {arm} | {metric} | {signed(fmean(differences))} | {interval} | {shown} | {len(differences)} |"


def exact(runs: list[dict[str, Any]], variant: str, metric: str) -> float | None:
    """`sign_flip` of an arm against the full method of its plan, paired by seed."""
    by_name = scores(runs, metric)
    suffix = next((end for end in BESIDE.values() if variant.endswith(end)), "")
    own, full = by_name.get(variant, {}), by_name.get(f"full{suffix}", {})
    return sign_flip([own[seed] - full[seed] for seed in sorted(own.keys() & full.keys())])


BASE_COLD = "mean_at_k_T0.5"
"""The untouched model, sampled at T = 0.5: the lowest of the three temperatures that round 0 measured."""


def against_base(
    runs: list[dict[str, Any]], metric: str = SCORE, untouched: str = BASE_COLD
) -> dict[str, VariantDifference]:
    """Each arm's score after its last round, less one of the untouched model before the first, by seed.

    What a gain at one temperature owes to a narrower distribution, a lower temperature of the base gives too.
    The trained models were not measured at T = 0.5, so this says only what is left above that.
    """
    base = {run["run"]: run["scores"]["0"][untouched] for run in runs if untouched in run["scores"]["0"]}
    found: dict[str, VariantDifference] = {}
    for arm, of_seed in scores(runs, metric).items():
        before = {run["seed"]: base[run["run"]] for run in runs if arm_of(run) == arm and run["run"] in base}
        found |= {line.variant: line for line in compare({arm: of_seed, "base": before}, "base", [arm])}
    return found


def carries(line: VariantDifference) -> str:
    """What a t interval carries by the rules of the page: nothing on three seeds, nor what Holm's correction
    takes back."""
    assert line.low is not None
    assert line.high is not None
    found = finding(line.low, line.high)
    if line.seeds < 5:
        return f"open: {count(line.seeds, 'seed')}"
    if found in ("gains", "loses") and line.p_holm is not None and line.p_holm >= 0.05:
        return f"no difference shown by Holm's correction (p {line.p_holm:.2f})"
    return found


def report_line(line: VariantDifference) -> str:
    """A difference with its t interval and what that carries."""
    assert line.difference is not None
    assert line.low is not None
    assert line.high is not None
    return report(line.difference, (line.low, line.high), "t", line.seeds, carries(line))


def volume(runs: list[dict[str, Any]]) -> tuple[int, float, float, float]:
    """mean@8 = a + b · ln(kept) over the arms of five rounds and five seeds, but `full` and `placebo`, whose
    difference it then predicts, and `no-filter-4-steps`, which practises a part of what it keeps.

    Returns:
        Arms, b, R², and the predicted mean@8 of placebo less that of full.
    """
    kept, scored = practised(runs), scores(runs, SCORE)
    left_out = ("full", "placebo", "no-filter-4-steps")
    arms = [arm for arm, of in kept.items() if len(of) == 5 and arm not in left_out]
    xs = [log(mean(kept[arm])) for arm in arms]
    ys = [mean(scored[arm].values()) for arm in arms]
    line = linear_regression(xs, ys)
    predicted = line.slope * (log(mean(kept["placebo"])) - log(mean(kept["full"])))
    return len(arms), line.slope, correlation(xs, ys) ** 2, predicted


def practised(runs: list[dict[str, Any]]) -> dict[str, list[int]]:
    """Questions kept in all rounds, by arm of the study, a run each."""
    kept: dict[str, list[int]] = {}
    for run in runs:
        if run["rounds"] == run["of"] and plan_of(arm_of(run)) == "study":
            kept.setdefault(arm_of(run), []).append(run["kept"])
    return kept


def at_equal_practice(runs: list[dict[str, Any]], arm: str, against: str) -> float:
    """The difference of two arms' mean@8 less what the regression on ln(kept) gives for their volumes."""
    kept, scored = practised(runs), scores(runs, SCORE)
    _, slope, _, _ = volume(runs)
    seen = mean(scored[arm].values()) - mean(scored[against].values())
    return seen - slope * (log(mean(kept[arm])) - log(mean(kept[against])))


def interval(line: VariantDifference) -> str:
    """The uncorrected 95% interval in words: "below, by 0.008 to 0.024", "within -0.013 to +0.014"."""
    assert line.low is not None
    assert line.high is not None
    if line.low > 0:
        return f"above, by {line.low:.3f} to {line.high:.3f}"
    if line.high < 0:
        return f"below, by {-line.high:.3f} to {-line.low:.3f}"
    return f"within {line.low:+.3f} to {line.high:+.3f}"


def finding(low: float, high: float, margin: float | None = None) -> str:
    """What a 95% interval of a difference carries, and no more. Equivalence only within a margin that was
    stated before the runs."""
    if low > 0:
        return "gains"
    if high < 0:
        return "loses"
    if margin is not None and -margin <= low and high <= margin:
        return f"equivalent within ±{margin:g}"
    return "no difference shown"


def report(difference: float, bounds: tuple[float, float], kind: str, seeds: int, carries: str) -> str:
    """A difference with its 95% interval, the kind of interval, and what it carries."""
    low, high = map(signed, bounds)
    return f"{signed(difference)} ({kind} 95%: {low} to {high}, {count(seeds, 'seed')}): {carries}"


def signed(value: float) -> str:
    """With three digits; a zero that rounding made negative has no minus."""
    return f"{0.0 if abs(value) < 1e-9 else value:+.3f}"


def power_of_gain(deviation: float, pairs: int, true: float) -> float:
    """The chance that a two-sided paired t-test at .05 finds a true gain."""
    from scipy import stats

    needed = stats.t.ppf(0.975, pairs - 1)
    return float(stats.nct.sf(needed, pairs - 1, true / deviation * pairs**0.5))


def power_of_equivalence(deviation: float, pairs: int, margin: float) -> float:
    """The chance that the 95% t interval of a true difference of 0 lies within the margin.

    Mean and deviation of normal differences are independent: the chance of the mean, averaged over the
    distribution of the deviation in equal steps of its probability.
    """
    from scipy import stats

    freedom, steps = pairs - 1, 2000
    error = deviation / pairs**0.5
    of_variance = stats.chi2.ppf([(step + 0.5) / steps for step in range(steps)], freedom) / freedom
    room = (margin - stats.t.ppf(0.975, freedom) * error * of_variance**0.5) / error
    return float((2 * stats.norm.cdf(room.clip(min=0)) - 1).mean())


def against_paper(found: Mapping[str, VariantDifference]) -> dict[str, list[VariantDifference]]:
    """The arms that the paper has below the full method and that are not clearly below here, by what their
    uncorrected interval says, from the highest down: "above" 0, or "within" which 0 lies."""
    signed = [variant for _, variant, metric, expected, paper in CLAIMS if _below(metric, expected, paper)]
    lines = [found[variant] for variant in signed if found[variant].low is not None]
    lines.sort(key=lambda line: -(line.difference or 0))
    return {
        which: [line for line in lines if interval(line).startswith(which)] for which in ("above", "within")
    }


def _below(metric: str, expected: str, paper: str) -> bool:
    return metric == SCORE and (expected if paper == SAID else paper) == "below"


def verdict(line: VariantDifference, expected: str, planned: int) -> str:
    """By the rule of the page.

    Nothing is shown on three seeds: exactly tested they cannot go below .25. Of fewer seeds than were planned
    it says so. That something is not below, or does not differ, is never shown: no margin was stated before
    the runs, so its interval is given instead.
    """
    if line.difference is None:
        return "not played"
    if line.p_holm is None:
        return f"open: {line.seeds} of {planned} seeds"
    if line.seeds < 5 and expected in ("below", "above"):
        return f"open: {interval(line)} on {line.seeds} seeds"
    clear = line.p_holm < 0.05
    up = line.difference > 0
    if expected in ("below", "above"):
        said = "not shown" if not clear else "shown" if up == (expected == "above") else "opposite"
    else:
        said = interval(line)
    return said if line.seeds == planned else f"{said}, on {line.seeds} of {planned} seeds"
