"""The vote on one question: which answers were given, how often, and which of them is the label."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from diagevo.equations.filter import counted


@dataclass(frozen=True, slots=True)
class Votes:
    """The votes of N responses to one question.

    `votes` holds each group's first answer and its size, in order of first appearance. `members[i]` is the
    group of response i, or None where the response gave no answer: it has no vote, but it stays in N.
    """

    responses: int
    votes: tuple[tuple[str, int], ...]
    members: tuple[int | None, ...]

    def __post_init__(self) -> None:
        if self.responses < 1:
            raise ValueError("a vote needs at least one response")

    @property
    def winner(self) -> int | None:
        """The group of the label: the largest; on a tie, the one that appeared first."""
        return self.votes.index((self.label, self.first)) if self.label is not None else None

    @property
    def label(self) -> str | None:
        """The majority answer, as its first response wrote it; None if no response answered."""
        return counted(self.votes)[0]

    @property
    def first(self) -> int:
        """Votes of the majority answer; 0 if there is none."""
        return counted(self.votes)[1]

    @property
    def second(self) -> int:
        """Votes of the second most common answer; 0 if there is none."""
        return counted(self.votes)[2]

    @property
    def p1(self) -> Fraction:
        """Vote share of the majority answer: the self-consistency p(x) of the paper. In [0, 1]."""
        return Fraction(self.first, self.responses)

    @property
    def p2(self) -> Fraction:
        """Vote share of the second most common answer. In [0, 1/2]."""
        return Fraction(self.second, self.responses)

    @property
    def agreeing(self) -> tuple[int, ...]:
        """Indices of the responses that agree with the label, in sample order; empty without a label."""
        winner = self.winner
        return () if winner is None else tuple(i for i, member in enumerate(self.members) if member == winner)


def count(answers: Sequence[str | None], agree: Callable[[str, str], bool]) -> Votes:
    """Group the answers of one question and count them.

    The partition depends on which answers were given how often, never on their order, and any two members of
    a group agree. `agree` is symmetric but not transitive (28 and 0.28 both agree with 28%), so answers are
    placed from the most frequent to the rarest, the same text first, each with the first group whose members
    all agree with it.
    """
    given = Counter(answer for answer in answers if answer is not None)
    groups: list[list[str]] = []
    for answer in sorted(given, key=lambda text: (-given[text], text)):
        for group in groups:
            if all(agree(member, answer) for member in group):
                group.append(answer)
                break
        else:
            groups.append([answer])
    group_of = {answer: i for i, group in enumerate(groups) for answer in group}
    heads: dict[int, str] = {}
    for answer in given:  # in the order of first appearance
        heads.setdefault(group_of[answer], answer)
    place = {group: i for i, group in enumerate(heads)}
    sizes = Counter(group_of[answer] for answer in answers if answer is not None)
    return Votes(
        len(answers),
        tuple((head, sizes[group]) for group, head in heads.items()),
        tuple(None if answer is None else place[group_of[answer]] for answer in answers),
    )
