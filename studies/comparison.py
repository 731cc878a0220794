"""Each arm of the study against the full method, and what that says of a claim."""

from collections.abc import Mapping
from typing import Any

from diagevo.evaluation.ablation import VARIANTS
from diagevo.evaluation.study import VariantDifference, compare
from studies.results import BESIDE, arm_of

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


def interval(line: VariantDifference) -> str:
    """The uncorrected 95% interval in words: "below, by 0.008 to 0.024", "within -0.013 to +0.014"."""
    assert line.low is not None
    assert line.high is not None
    if line.low > 0:
        return f"above, by {line.low:.3f} to {line.high:.3f}"
    if line.high < 0:
        return f"below, by {-line.high:.3f} to {-line.low:.3f}"
    return f"within {line.low:+.3f} to {line.high:+.3f}"


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
    """By the rule of the page. Of fewer seeds than were planned it says so. That something is not below, or
    does not differ, is never shown: no margin was stated before the runs, so its interval is told instead."""
    if line.difference is None:
        return "not played"
    if line.p_holm is None:
        return f"open: {line.seeds} of {planned} seeds"
    clear = line.p_holm < 0.05
    up = line.difference > 0
    if expected in ("below", "above"):
        said = "not shown" if not clear else "shown" if up == (expected == "above") else "opposite"
    else:
        said = interval(line)
    return said if line.seeds == planned else f"{said}, on {line.seeds} of {planned} seeds"
