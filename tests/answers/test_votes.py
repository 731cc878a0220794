from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.answers.votes import count


def exactly(a: str, b: str) -> bool:
    return a == b


def test_votes_are_counted_in_order_of_first_appearance():
    votes = count(["7", "5", None, "5", "7", "5"], exactly)
    assert votes.votes == (("7", 2), ("5", 3))
    assert votes.members == (0, 1, None, 1, 0, 1)
    assert (votes.label, votes.first, votes.second) == ("5", 3, 2)
    assert (votes.p1, votes.p2) == (Fraction(1, 2), Fraction(1, 3))
    assert votes.agreeing == (1, 3, 5)


def test_a_response_without_a_box_stays_in_the_denominator():
    votes = count(["4", None, None, None], exactly)
    assert (votes.responses, votes.members.count(None), votes.p1) == (4, 3, Fraction(1, 4))


def test_no_box_at_all_leaves_no_label():
    votes = count([None, None], exactly)
    assert (votes.label, votes.first, votes.second, votes.p1, votes.agreeing) == (None, 0, 0, 0, ())


def test_a_tie_goes_to_the_answer_that_appeared_first():
    assert count(["b", "a", "a", "b"], exactly).label == "b"
    assert count(["c", "b", "a", "a", "b"], exactly).label == "b"


def test_one_answer_only_has_no_second():
    votes = count(["1"] * 12, exactly)
    assert (votes.p1, votes.p2, votes.second) == (1, 0, 0)


def test_all_different_answers_have_one_vote_each():
    votes = count(["1", "2", "3"], exactly)
    assert (votes.label, votes.first, votes.second) == ("1", 1, 1)


def test_a_single_response_is_its_own_majority():
    assert count(["9"], exactly).p1 == 1


def test_a_vote_of_nobody_is_refused():
    with pytest.raises(ValueError, match="at least one response"):
        count([], exactly)


def test_each_answer_joins_the_first_group_whose_first_member_agrees():
    near = {("1", "2"), ("2", "3"), ("1", "x"), ("3", "x")}  # not transitive: 1~2~3, and x near 1 and 3

    def agree(a: str, b: str) -> bool:
        return (a, b) in near or (b, a) in near

    assert count(["1", "2", "3"], agree).members == (0, 0, 1)  # 3 is compared with 1, not with 2
    assert count(["2", "1", "3"], agree).members == (0, 0, 0)
    assert count(["1", "3", "x"], agree).members == (0, 1, 0)
    assert count(["3", "1", "x"], agree).members == (0, 1, 0)


@given(st.lists(st.one_of(st.none(), st.sampled_from("abcd")), min_size=1, max_size=12))
def test_the_histogram_adds_up(answers):
    votes = count(answers, exactly)
    assert sum(size for _, size in votes.votes) + votes.members.count(None) == votes.responses == len(answers)
    for group, (head, size) in enumerate(votes.votes):
        assert size == sum(member == group for member in votes.members) == answers.count(head)
    assert 0 <= votes.p2 <= votes.p1 <= 1
    assert votes.p1 + votes.p2 <= 1


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8))
def test_the_label_has_most_votes_and_came_first_among_them(answers):
    most = max(answers.count(answer) for answer in answers)
    assert count(answers, exactly).label == next(a for a in answers if answers.count(a) == most)
