"""What an accuracy is: the mean over questions of the mean over their samples, with its standard error.

Questions are the independent units; samples of one question are not. So the standard error is taken over the
questions' means: it holds for mean@k and for a single greedy answer alike. Accuracies are shares in [0, 1].
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagevo.errors import extra

_COLDER = re.compile(r"mean_at_k_T(\d+\.?\d*)")
AT_BEST = "mean_at_k_best"
"""The mean over samples at a model's best temperature."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over questions with its standard error (0 with fewer than two questions)."""

    value: float
    standard_error: float
    questions: int


def estimate(scores_Q: Sequence[float]) -> Estimate:
    """The mean of the questions' scores. Raises ValueError if there is no question."""
    if not scores_Q:
        raise ValueError("an accuracy needs at least one question")
    n = len(scores_Q)
    mean = math.fsum(scores_Q) / n
    if n == 1:
        return Estimate(mean, 0.0, n)
    variance = math.fsum((score - mean) ** 2 for score in scores_Q) / (n - 1)
    return Estimate(mean, math.sqrt(variance / n), n)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much the second evaluation scores above the first on the same questions.

    `low` and `high` bound the difference at `confidence` by Student's t over the questions' differences.
    `better` and `worse` count the questions whose score rose and fell; `p_value` is the exact sign test's
    over those: with one greedy answer a question it is McNemar's exact test.
    """

    first: float
    second: float
    difference: float
    standard_error: float
    low: float
    high: float
    confidence: float
    questions: int
    better: int
    worse: int
    p_value: float


def paired_difference(
    first_Q: Sequence[float], second_Q: Sequence[float], *, confidence: float = 0.95
) -> PairedDifference:
    """Compare two score lists of the same questions, in the same order.

    Raises ValueError if they differ in length or have fewer than two questions.
    """
    if len(first_Q) != len(second_Q):
        raise ValueError(f"{len(first_Q)} and {len(second_Q)} scores cannot be paired")
    if len(first_Q) < 2:
        raise ValueError("a paired comparison needs at least two questions")
    with extra("eval", "a paired comparison"):
        from scipy import stats

    differences = [b - a for a, b in zip(first_Q, second_Q, strict=True)]
    gain = estimate(differences)
    half = float(stats.t.ppf((1 + confidence) / 2, gain.questions - 1)) * gain.standard_error
    better = sum(d > 0 for d in differences)
    worse = sum(d < 0 for d in differences)
    p_value = float(stats.binomtest(better, better + worse, 0.5).pvalue) if better + worse else 1.0
    return PairedDifference(
        first=estimate(first_Q).value,
        second=estimate(second_Q).value,
        difference=gain.value,
        standard_error=gain.standard_error,
        low=gain.value - half,
        high=gain.value + half,
        confidence=confidence,
        questions=gain.questions,
        better=better,
        worse=worse,
        p_value=p_value,
    )


NORMAL = 1.959964
"""The 97.5% point of the normal distribution: two-sided, 95%."""


def share_interval(share: float, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share over n independent questions.

    If each question has a share rather than a yes or no, it is wider than necessary.
    """
    z2 = NORMAL**2
    middle, half = share + z2 / (2 * n), NORMAL * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, (middle - half) / (1 + z2 / n)), min(1.0, (middle + half) / (1 + z2 / n))


def sign_test(less: int, more: int) -> float:
    """The exact two-sided sign test: the probability of at least as uneven a split of the changed questions,
    if each were equally likely to get better or worse. 1 if none changed."""
    n, fewer = less + more, min(less, more)
    ways = total = 1
    for k in range(
        fewer
    ):  # each binomial coefficient from the one before it: whole, its digits are thousands
        ways = ways * (n - k) // (k + 1)
        total += ways
    return min(1.0, 2 * total / 2**n)


def at_best_temperature(scores_by_heat: Mapping[float, Sequence[float]]) -> list[float]:
    """The questions' scores at the best of the temperatures, chosen on other questions: the best on even
    positions scores the odd ones, and vice versa. Ties go to the lower one."""
    scores_Q = list(next(iter(scores_by_heat.values())))
    for chosen_on, scored in ((0, 1), (1, 0)):
        best = max(scores_by_heat, key=lambda heat: (math.fsum(scores_by_heat[heat][chosen_on::2]), -heat))
        scores_Q[scored::2] = scores_by_heat[best][scored::2]
    return scores_Q


def colder(metrics: Mapping[str, float]) -> dict[str, str]:
    """Labels of a model's scores at lower temperatures, by metric, the highest first."""
    heats = [found[1] for name in metrics if (found := _COLDER.fullmatch(name))]
    return {f"mean_at_k_T{heat}": f"T = {heat}" for heat in sorted(heats, key=float, reverse=True)}
