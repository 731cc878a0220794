"""The rewards of challenger and solver: pure functions of votes and cluster shares.

They work on one whole update batch, gathered from all ranks; a share of a part of the batch would be another
number.
"""

from collections.abc import Sequence
from fractions import Fraction

HALF = Fraction(1, 2)


def uncertainty(p1: Fraction) -> Fraction:
    """Equation 9: 1 - 2·|p1 - 1/2|.

    Args:
        p1: the majority's share of the responses, in [0, 1].

    Returns:
        A Fraction in [0, 1]: 1 at p1 = 1/2, 0 at p1 = 0 and p1 = 1.
    """
    return 1 - 2 * abs(p1 - HALF)


def challenger_rewards(p1s: Sequence[Fraction | None], shares: Sequence[float], weight: float) -> list[float]:
    """Equation 11: max(0, uncertainty - λ·share) for each completion of a step.

    Args:
        p1s: (B,) the solver's majority shares; None for a completion without a readable question.
        shares: (B,) size of the completion's cluster over B (`repetition.shares`), in (0, 1].
        weight: λ, the weight of the repetition penalty.

    Returns:
        (B,) rewards in [0, 1]; 0 for completions without a readable question.

    Raises:
        ValueError: if `p1s` and `shares` differ in length.
    """
    return [
        0.0 if p1 is None else max(0.0, float(uncertainty(p1)) - weight * float(share))
        for p1, share in zip(p1s, shares, strict=True)
    ]


def solver_rewards(agrees: Sequence[bool]) -> list[float]:
    """The solver's rewards (Section 2.2).

    Args:
        agrees: whether each optimization response agrees with the pseudo-label.

    Returns:
        +1 for each response that agrees, -1 for every other.
    """
    return [1.0 if agreed else -1.0 for agreed in agrees]


def weighted_rewards(agrees: Sequence[bool], weight: float) -> list[float]:
    """R-Few's solver rewards, after its description: 1 + λ for a right response to a labelled item.

    Args:
        agrees: whether each response agrees with the label.
        weight: λ of a labelled item (2 there); 0 of a question whose label is a majority.

    Returns:
        1 + `weight` for each response that agrees, 0 for every other.
    """
    return [1.0 + weight if agreed else 0.0 for agreed in agrees]
