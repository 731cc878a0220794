"""What DARC's questioner earns, worked out by hand; copies; near-duplicates against a plain double loop."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.equations.darc_rewards import (
    Measured,
    copied_share,
    level_reward,
    ranked_rewards,
)
from diagevo.methods.near_duplicates import distinct

SIX = ("abcdef", "bcdefg", "cdefgh", "defghi", "efghij")


@pytest.mark.parametrize(
    ("level", "accuracy", "earned"),
    [
        (1, "4/5", "1"),
        (2, "1/2", "1"),
        (3, "1/5", "1"),
        (1, "1/5", "2/5"),  # 1 - |.2 - .8|
        (3, "4/5", "2/5"),
        (2, "4/5", "7/10"),
        (2, "1/5", "7/10"),
        (1, "1", "4/5"),
        (3, "1", "1/5"),
        (1, "0", "-1/10"),
        (2, "0", "-1/10"),
        (3, "0", "-1/10"),
        (1, None, "-1"),
    ],
)
def test_a_question_earns_how_near_it_is_to_the_target_of_its_level(
    level: int, accuracy: str | None, earned: str
) -> None:
    assert level_reward(level, None if accuracy is None else Fraction(accuracy)) == Fraction(earned)


def _step(*given: tuple[str, int, str | None]) -> list[Fraction]:
    return ranked_rewards([Measured(d, n, None if a is None else Fraction(a)) for d, n, a in given])


def test_neighbours_out_of_order_both_lose_half_of_what_is_missing() -> None:
    # Easy .5 earns .7, moderate .5 earns 1: a tie is .2 short, and costs each .1.
    assert _step(("d", 1, "1/2"), ("d", 2, "1/2")) == [Fraction(6, 10), Fraction(9, 10)]
    # Just far enough apart costs nothing.
    assert _step(("d", 1, "7/10"), ("d", 2, "1/2")) == [Fraction(9, 10), 1]
    # Upside down: .2 earns .4, 1 earns .2; 1 + .2 - .2 = 1 costs each .5, and neither goes below 0.
    assert _step(("d", 1, "1/5"), ("d", 3, "1")) == [0, 0]


def test_the_middle_one_of_three_levels_pays_twice() -> None:
    # .8, 1 and .7 before; each pair is .2 short, so .1 a pair.
    found = _step(("d", 1, "1/2"), ("d", 2, "1/2"), ("d", 3, "1/2"))
    assert found == [Fraction(6, 10), Fraction(8, 10), Fraction(6, 10)]


def test_documents_levels_and_what_earns_less_than_nothing_are_apart() -> None:
    assert _step(("d", 1, "1/2"), ("e", 2, "1/2")) == [Fraction(7, 10), 1]
    assert _step(("d", 2, "1/2"), ("d", 2, "1")) == [1, Fraction(1, 2)]
    assert _step(("d", 1, "1/2"), ("d", 2, "0")) == [Fraction(7, 10), Fraction(-1, 10)]
    assert _step(("d", 1, "1/2"), ("d", 2, None), ("d", 3, "1/2")) == [
        Fraction(6, 10),
        -1,
        Fraction(6, 10),
    ]


def test_of_many_of_a_level_only_those_at_the_border_are_compared() -> None:
    # As drawn: the last easy one meets the first moderate one, and nobody else is compared.
    found = _step(("d", 1, "1/2"), ("d", 1, "9/10"), ("d", 2, "1/2"), ("d", 2, "1"))
    assert found == [Fraction(7, 10), Fraction(9, 10), 1, Fraction(1, 2)]
    found = _step(("d", 1, "9/10"), ("d", 1, "1/2"), ("d", 2, "1/2"), ("d", 2, "1"))
    assert found == [Fraction(9, 10), Fraction(6, 10), Fraction(9, 10), Fraction(1, 2)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("de"), st.integers(1, 3), st.none() | st.integers(0, 10).map(lambda n: f"{n}/10")
        )
    )
)
def test_a_penalty_takes_from_nobody_more_than_there_is(step: list[tuple[str, int, str | None]]) -> None:
    before = [level_reward(n, None if a is None else Fraction(a)) for _, n, a in step]
    for found, was in zip(_step(*step), before, strict=True):
        assert found == was if was < 0 else 0 <= found <= was


def test_the_share_of_what_is_copied_is_counted_in_six_characters() -> None:
    document = "q".join(SIX[:4])  # abcdef q bcdefg q cdefgh q defghi
    question = "abcdefghij"  # five pieces: SIX, four of them known
    assert copied_share(document, question) == Fraction(4, 5)
    assert copied_share("q".join(SIX), question) == 1
    assert copied_share("nothing of it", question) == 0


def test_a_question_that_stands_in_its_document_is_a_copy_whatever_its_signs() -> None:
    assert copied_share("Of 12 coins, ONE is false!  Which?", "one IS false: which") == 1
    assert copied_share("12*4=48 ; 48-5=43", "48 48") == 1
    assert copied_share("a b c", "a x") == Fraction(1, 2)  # too short for six: of its words
    assert copied_share("", "abcdefg") == copied_share("abcdefg", " ?! ") == 0
    assert copied_share("x" * 50_000 + " the question", "the question") == 0


def _by_two_loops(vectors: np.ndarray, below: float) -> list[int]:
    """Each row against each that stayed, one cosine at a time."""
    stayed: list[int] = []
    for place in reversed(range(len(vectors))):
        near = False
        for other in stayed:
            one, two = vectors[place].astype(float), vectors[other].astype(float)
            near |= float((one * two).sum() / np.sqrt((one * one).sum() * (two * two).sum())) >= below
        if not near:
            stayed.append(place)
    return sorted(stayed)


@pytest.mark.parametrize("seed", range(20))
def test_near_duplicates_are_those_of_two_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(int(rng.integers(0, 60)), 4))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    assert distinct(vectors, 0.6) == _by_two_loops(vectors, 0.6)


def test_of_two_alike_the_later_stays_and_what_fell_draws_nobody_after_it() -> None:
    east, between, north = (1.0, 0.0), (0.6, 0.8), (0.0, 1.0)
    for order in permutations((east, between, north)):
        found = distinct(np.array(order), 0.6)
        assert found == _by_two_loops(np.array(order), 0.6)
        assert found[-1] == 2
    # North is near between, which stays; east is as near to it: exactly .6 is near enough.
    assert distinct(np.array((east, north, between)), 0.6) == [2]
    # East falls to between no more where between fell to north.
    assert distinct(np.array((east, between, north)), 0.6) == [0, 2]
    assert distinct(np.empty((0, 2)), 0.6) == []
