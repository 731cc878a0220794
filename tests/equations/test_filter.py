from fractions import Fraction

import pytest

from diagevo.answers.votes import Votes
from diagevo.config.models import FilterConfig
from diagevo.equations import filter as equation
from diagevo.memory.state.stored_config import filter_in

PAPER = FilterConfig()


def verdict(votes: Votes, settings: FilterConfig) -> str:
    return equation.verdict(
        votes.first, votes.second, votes.responses, votes.label is not None, filter_in(settings)
    )


def votes(*sizes: int, responses: int = 12) -> Votes:
    members = [group for group, size in enumerate(sizes) for _ in range(size)]
    members += [None] * (responses - len(members))
    return Votes(responses, tuple((str(i), size) for i, size in enumerate(sizes)), tuple(members))


@pytest.mark.parametrize("sizes", [(5, 3), (6, 3), (7, 4), (8, 4), (3, 1), (9, 3)])
def test_twelve_votes_with_a_clear_lead_are_kept(sizes):
    assert verdict(votes(*sizes), PAPER) == "kept"


@pytest.mark.parametrize("sizes", [(4, 3), (5, 4), (3, 2), (6, 6), (3, 3, 3, 3)])
def test_twelve_votes_with_two_close_leaders_are_contested(sizes):
    assert verdict(votes(*sizes), PAPER) == "contested"


@pytest.mark.parametrize("first", range(1, 13))
@pytest.mark.parametrize("second", range(7))
def test_the_filter_at_twelve_is_the_integer_rule(first, second):
    """N = 12 keeps 3 <= c1 <= 9 with 5·c1 >= 8·c2."""
    if second > first or first + second > 12:
        return
    sizes = (first, second) if second else (first,)
    kept = 3 <= first <= 9 and 5 * first >= 8 * second
    assert (verdict(votes(*sizes), PAPER) == "kept") is kept


def test_both_bounds_are_part_of_the_range():
    assert verdict(votes(3), PAPER) == "kept"  # 1/4
    assert verdict(votes(9), PAPER) == "kept"  # 3/4
    assert verdict(votes(2), PAPER) == "too_hard"
    assert verdict(votes(10), PAPER) == "too_easy"


def test_a_ratio_that_is_met_exactly_is_kept():
    assert verdict(votes(8, 5, responses=13), PAPER) == "kept"  # 8 = 1.6·5
    assert verdict(votes(79, 50, responses=200), PAPER) == "contested"


def test_a_threshold_that_floats_would_miss():
    third = FilterConfig(p_low=Fraction(7, 10), p_high=Fraction(1))
    assert verdict(votes(7, responses=10), third) == "kept"  # 0.1 + 0.6 < 0.7 in floating point
    tenths = FilterConfig(p_low=Fraction("0.3"), p_high=Fraction("0.3"))
    assert verdict(votes(3, responses=10), tenths) == "kept"


def test_too_hard_is_told_before_contested():
    assert verdict(votes(2, 2, 2, 2), PAPER) == "too_hard"


def test_nobody_answered():
    assert verdict(votes(), PAPER) == "no_label"
    assert verdict(votes(), FilterConfig(variant="none")) == "no_label"


def test_the_absolute_variant_leaves_out_the_second_constraint():
    absolute = FilterConfig(variant="absolute")
    assert verdict(votes(4, 4), absolute) == "kept"
    assert verdict(votes(10), absolute) == "too_easy"


def test_without_a_filter_everything_with_a_label_is_kept():
    unfiltered = FilterConfig(variant="none")
    assert {verdict(votes(*sizes), unfiltered) for sizes in [(1,), (12,), (6, 6)]} == {"kept"}


def test_with_tau_above_one_a_tie_never_passes():
    for size in range(3, 7):
        assert verdict(votes(size, size), PAPER) == "contested"
