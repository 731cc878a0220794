import pytest

from diagevo.evaluation.protocol import best_round, estimate, paired_difference


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


def test_of_equally_good_rounds_the_earlier_is_chosen() -> None:
    assert best_round({3: 0.7, 1: 0.6, 2: 0.7}) == 2
