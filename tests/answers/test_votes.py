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


@pytest.mark.parametrize(
    ("answers", "label", "first", "second", "responses"),
    [
        (["4", None, None, None], "4", 1, 0, 4),  # without a box: in the denominator
        ([None, None], None, 0, 0, 2),
        (["b", "a", "a", "b"], "b", 2, 2, 4),  # a tie goes to the one that appeared first
        (["c", "b", "a", "a", "b"], "b", 2, 2, 5),
        (["1"] * 12, "1", 12, 0, 12),
        (["1", "2", "3"], "1", 1, 1, 3),
    ],
)
def test_the_label_is_the_answer_with_most_votes_of_all_responses(
    answers: list[str | None], label: str | None, first: int, second: int, responses: int
):
    votes = count(answers, exactly)
    assert (votes.label, votes.first, votes.second, votes.responses) == (label, first, second, responses)
    assert (votes.p1, votes.p2) == (Fraction(first, responses), Fraction(second, responses))
    assert len(votes.agreeing) == first


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
