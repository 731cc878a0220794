"""Estimates with their errors, and variants against one, paired by seed: figures worked out by hand."""

import sys

import pytest

from diagevo.errors import MissingDependencyError
from diagevo.evaluation.ablation import compare, holm
from diagevo.evaluation.benchmarks import Question
from diagevo.evaluation.evaluate import validate
from diagevo.evaluation.protocol import at_best_temperature, colder, estimate, paired_difference
from diagevo.sampling.sampler import SamplingParams

from .scripted import BarePrompts, SameText, ScriptedSampler


def test_the_standard_error_is_over_questions() -> None:
    # scores 1, 0, 1, 0: mean 1/2, sample variance 1/3, error sqrt(1/3/4)
    result = estimate([1.0, 0.0, 1.0, 0.0])
    assert (result.value, result.questions) == (0.5, 4)
    assert result.standard_error == pytest.approx((1 / 12) ** 0.5)


def test_an_estimate_needs_a_question() -> None:
    with pytest.raises(ValueError, match="at least one question"):
        estimate([])


def test_a_paired_difference_uses_the_pairs_not_the_two_errors() -> None:
    # The second is better by exactly 1/2 on every question: however they spread, the difference does not.
    result = paired_difference([0.0, 0.5, 0.25, 0.5], [0.5, 1.0, 0.75, 1.0])
    assert result.difference == 0.5
    assert (result.low, result.high, result.standard_error) == (0.5, 0.5, 0.0)
    assert (result.better, result.worse) == (4, 0)
    assert result.p_value == pytest.approx(2 * 0.5**4)


def test_a_paired_interval_agrees_with_a_hand_worked_one() -> None:
    # differences 1, 0, 0, 1, 0: mean 0.4, sd sqrt(0.3), error sqrt(0.06); t(0.975, 4) = 2.7764451
    result = paired_difference([0, 1, 0, 0, 1], [1, 1, 0, 1, 1])
    half = 2.7764451051977987 * 0.06**0.5
    assert (result.low, result.high) == (pytest.approx(0.4 - half), pytest.approx(0.4 + half))
    assert result.p_value == pytest.approx(0.5)  # 2 rose, 0 fell: 2 × 1/4


def test_lists_of_different_questions_are_not_paired() -> None:
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_difference([1.0], [1.0, 0.0])


FULL = dict.fromkeys(range(3, 8), 0.8)
LESS = {3: 0.75, 4: 0.77, 5: 0.76, 6: 0.74, 7: 0.78}
"""Differences -0.05, -0.03, -0.04, -0.06, -0.02: mean -0.04, deviation 0.0158114, error 0.0070711."""


def test_a_variant_is_compared_within_seeds_with_interval_effect_and_p() -> None:
    """t = -0.04 / 0.0070711 = -5.65685 with four degrees of freedom; the 0.975 quantile of t is 2.776445."""
    [found] = compare({"full": FULL, "less": LESS}, "full", ["full", "less"])
    assert (found.variant, found.seeds) == ("less", 5)
    assert found.score == pytest.approx(0.76)
    assert found.difference == pytest.approx(-0.04)
    assert (found.low, found.high) == pytest.approx((-0.05963, -0.02037), abs=1e-5)
    assert found.effect == pytest.approx(-2.52982, abs=1e-5)
    assert found.p == pytest.approx(0.0048127, abs=1e-7)
    assert found.p_holm == found.p


def test_only_seeds_that_both_have_are_pairs() -> None:
    [found] = compare({"full": FULL, "less": LESS | {9: 0.0}}, "full", ["full", "less"])
    assert found.seeds == 5
    [found] = compare({"full": {3: 0.8}, "less": LESS}, "full", ["full", "less"])
    assert (found.seeds, found.difference, found.low, found.p) == (1, pytest.approx(-0.05), None, None)
    [found] = compare({"full": FULL}, "full", ["full", "less"])
    assert (found.seeds, found.score, found.difference, found.p_holm) == (0, None, None, None)


def test_differences_all_alike_have_no_deviation_to_be_measured_by() -> None:
    [found] = compare({"full": FULL, "same": FULL}, "full", ["full", "same"])
    assert (found.difference, found.low, found.effect, found.p) == (0.0, None, None, None)


def test_holm_multiplies_the_smallest_by_all_tests_and_never_falls() -> None:
    """Of four: 0.01 * 4 = 0.04; 0.03 * 3 = 0.09; 0.04 * 2 = 0.08, but not below 0.09; 0.9 * 1."""
    assert holm({"a": 0.04, "b": 0.01, "c": 0.9, "d": 0.03}, 4) == pytest.approx(
        {"b": 0.04, "d": 0.09, "a": 0.09, "c": 0.9}
    )
    assert holm({"a": 0.5}, 3) == {"a": 1.0}


def test_variants_that_are_not_played_yet_count_among_the_tests() -> None:
    found = compare({"full": FULL, "less": LESS}, "full", ["full", "less", "later", "last"])
    by_name = {each.variant: each.p_holm for each in found}
    assert by_name == {"less": pytest.approx(3 * 0.0048127, abs=1e-6), "later": None, "last": None}


def test_without_the_extra_the_comparison_says_what_it_needs_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)  # Python's own way to say that it is not there
    with pytest.raises(MissingDependencyError) as missing:
        compare({"full": {0: 0.5, 1: 0.6}, "free": {0: 0.4, 1: 0.3}}, "full", ["full", "free"])
    assert missing.value.exit_code == 4
    assert missing.value.message == "a paired comparison needs scipy, which is not installed"
    assert missing.value.hint == "run: pip install 'diagevo[eval]'"


QUESTIONS = [Question("2+2?", "4", None, "answer"), Question("3+3?", "6", None, "answer")]


def test_the_best_temperature_of_a_question_is_chosen_on_others() -> None:
    """On the even places T = 1 has 1.2 of 2 and T = 0.5 1.0, on the odd ones 0.2 and 1.0. The best of both
    without that choice, 0.75, would be what luck gives."""
    scores_by_heat = {1.0: [1.0, 0.2, 0.2, 0.0], 0.5: [0.0, 1.0, 1.0, 0.0]}
    assert at_best_temperature(scores_by_heat) == [0.0, 0.2, 1.0, 0.0]
    assert at_best_temperature({1.0: [0.5, 0.5], 0.5: [0.5, 1.0]}) == [0.5, 1.0], "of equals the lower one"


def half_right_when_sampled(message: str, sample: int, params: SamplingParams) -> str:
    """The first question is always right; the second is right greedily and for one sample of four."""
    if message == "2+2?":
        return r"so \boxed{4}"
    if params.temperature == 0:
        return r"so \boxed{6}"
    if params.temperature < 1:
        return r"\boxed{6}" if sample < 2 else r"\boxed{7}"
    return [r"\boxed{6}", r"\boxed{7}", "no idea", r"\boxed{8}"][sample]


def test_validation_gives_the_mean_over_samples_and_the_greedy_answer() -> None:
    sampler = ScriptedSampler(half_right_when_sampled)
    metrics = validate(
        sampler, BarePrompts(), QUESTIONS, SameText(), samples=4, params=SamplingParams(), seed=3
    )
    assert metrics["mean_at_k"] == 0.625  # (1 + 1/4) / 2
    assert metrics["mean_at_k_se"] == pytest.approx(0.375)  # scores 1 and 1/4
    assert metrics["greedy"] == 1.0
    assert metrics["greedy_se"] == 0.0
    assert metrics["no_box"] == 0.125  # one response of eight
    assert not colder(metrics)


def test_the_temperature_baselines_draw_the_same_samples_colder() -> None:
    metrics = validate(
        ScriptedSampler(half_right_when_sampled),
        BarePrompts(),
        QUESTIONS,
        SameText(),
        samples=4,
        params=SamplingParams(),
        seed=3,
        temperatures=(0.5, 0.77),
    )
    assert metrics["mean_at_k_T0.77"] == metrics["mean_at_k_T0.5"] == 0.75
    assert metrics["mean_at_k_best"] == 0.75
    assert colder(metrics) == {"mean_at_k_T0.77": "T = 0.77", "mean_at_k_T0.5": "T = 0.5"}
