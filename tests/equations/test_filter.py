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


@pytest.mark.parametrize("first", range(1, 13))
@pytest.mark.parametrize("second", range(7))
def test_the_filter_at_twelve_is_the_integer_rule(first, second):
    """N = 12 keeps 3 <= c1 <= 9, both included, with 5·c1 >= 8·c2; what is too hard is not contested."""
    if second > first or first + second > 12:
        return
    by_range = "too_hard" if first < 3 else "too_easy" if first > 9 else None
    expected = by_range or ("kept" if 5 * first >= 8 * second else "contested")
    assert verdict(votes(*((first, second) if second else (first,))), PAPER) == expected


def test_a_ratio_that_is_met_exactly_is_kept():
    assert verdict(votes(8, 5, responses=13), PAPER) == "kept"  # 8 = 1.6·5
    assert verdict(votes(79, 50, responses=200), PAPER) == "contested"


def test_a_threshold_that_floats_would_miss():
    third = FilterConfig(p_low=Fraction(7, 10), p_high=Fraction(1))
    assert verdict(votes(7, responses=10), third) == "kept"  # 0.1 + 0.6 < 0.7 in floating point
    tenths = FilterConfig(p_low=Fraction("0.3"), p_high=Fraction("0.3"))
    assert verdict(votes(3, responses=10), tenths) == "kept"


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
