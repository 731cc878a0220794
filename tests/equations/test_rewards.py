from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.equations.rewards import challenger_rewards, solver_rewards, uncertainty


@pytest.mark.parametrize(
    ("p1", "reward"),
    [("0", "0"), ("1/4", "1/2"), ("1/2", "1"), ("7/12", "5/6"), ("3/4", "1/2"), ("1", "0")],
)
def test_uncertainty_peaks_at_one_half(p1, reward):
    assert uncertainty(Fraction(p1)) == Fraction(reward)


@pytest.mark.parametrize(
    ("p1s", "shares", "weight", "rewards"),
    [
        (["2/5", "9/10", "1/2"], [0.3, 0.5, 0.0], 1.0, [0.5, 0.0, 1.0]),  # 0.8 - 0.3; 0.2 - 0.5 is nothing
        (["1/2"], [0.25], 2.0, [0.5]),
        (["1/2"], [0.25], 0.0, [1.0]),
        ([None, "1/2"], [0.0, 0.0], 1.0, [0.0, 1.0]),  # an unreadable question earns nothing
    ],
)
def test_the_weighted_share_is_taken_off_and_no_reward_is_below_zero(p1s, shares, weight, rewards):
    given = [None if p1 is None else Fraction(p1) for p1 in p1s]
    assert challenger_rewards(given, shares, weight) == pytest.approx(rewards, abs=1e-15)


def test_every_completion_needs_its_share():
    with pytest.raises(ValueError, match="shorter"):
        challenger_rewards([Fraction(1, 2), None], [0.1], 1.0)


def test_the_solver_gets_plus_or_minus_one():
    assert solver_rewards([True, False]) == [1.0, -1.0]


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.fractions(0, 1)), st.floats(0, 1)), max_size=20),
    st.floats(0, 5),
)
def test_a_challenger_reward_is_between_zero_and_one(pairs, weight):
    rewards = challenger_rewards([p for p, _ in pairs], [share for _, share in pairs], weight)
    assert all(0.0 <= reward <= 1.0 for reward in rewards)
