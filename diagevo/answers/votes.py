"""The vote on one question: which answers were given, how often, and which of them is the label."""

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
        """The majority answer, as its first response wrote it; None where nobody answered."""
        return counted(self.votes)[0]

    @property
    def first(self) -> int:
        """Votes of the majority answer; 0 where there is none."""
        return counted(self.votes)[1]

    @property
    def second(self) -> int:
        """Votes of the second most common answer; 0 where there is none."""
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
    """Group the answers of one question, in sample order, and count them.

    Each answer is compared with the first member of each group in turn and joins the first group that agrees.
    `agree` is neither symmetric nor transitive in general, so this order is part of the definition.
    """
    heads: list[str] = []
    sizes: list[int] = []
    group_of: dict[str, int] = {}
    members: list[int | None] = []
    for answer in answers:
        if answer is None:
            members.append(None)
            continue
        group = group_of.get(answer)
        if group is None:
            group = next((g for g, head in enumerate(heads) if agree(head, answer)), len(heads))
            if group == len(heads):
                heads.append(answer)
                sizes.append(0)
            group_of[answer] = group
        sizes[group] += 1
        members.append(group)
    return Votes(len(answers), tuple(zip(heads, sizes, strict=True)), tuple(members))
