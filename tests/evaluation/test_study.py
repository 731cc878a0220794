"""Variants against one, paired by seed: figures worked out by hand."""

import sys

import pytest

from diagevo.errors import MissingDependencyError
from diagevo.evaluation.study import compare, holm

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
