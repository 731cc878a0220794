from collections.abc import Callable
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


def near(a: str, b: str) -> bool:
    """Not transitive: 1~2~3, and x is near 1 and 3."""
    pairs = {("1", "2"), ("2", "3"), ("1", "x"), ("3", "x")}
    return (a, b) in pairs or (b, a) in pairs


def test_an_answer_joins_the_largest_answer_that_it_agrees_with_and_only_a_group_that_it_agrees_with_wholly():
    """From the most frequent to the rarest, the same count by text: 1, 2, 3, x."""
    assert count(["1", "2", "3"], near).members == (0, 0, 1)  # 3 agrees with 2, but not with 1
    assert count(["2", "1", "3"], near).members == (0, 0, 1)
    assert count(["3", "2", "1"], near).members == (0, 1, 1)  # the same groups
    assert count(["3", "2", "1", "3"], near).members == (0, 0, 1, 0)  # 3 comes first, and 2 joins it
    assert count(["1", "3", "x"], near).members == (0, 1, 0)
    assert count(["1", "3", "x", "3"], near).members == (0, 1, 1, 1)


def partition(answers: list[str], agree: Callable[[str, str], bool]) -> set[frozenset[str]]:
    votes = count(answers, agree)
    return {
        frozenset(a for a, member in zip(answers, votes.members, strict=True) if member == group)
        for group in range(len(votes.votes))
    }


@given(st.data(), st.sets(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef"))))
def test_any_symmetric_relation_gives_one_partition_in_every_order_and_no_two_members_differ(data, pairs):
    def agree(a: str, b: str) -> bool:
        return a == b or (a, b) in pairs or (b, a) in pairs

    answers = data.draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=10))
    groups = partition(answers, agree)
    assert partition(data.draw(st.permutations(answers)), agree) == groups
    assert all(agree(a, b) for group in groups for a in group for b in group)


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
