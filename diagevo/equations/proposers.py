"""What a challenger earns in Absolute Zero, SPICE and DARC, whose rewards follow from what was measured of
each completion. Pure, so that who reads the log works them out again."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from diagevo.equations.darc_rewards import Measured, ranked_rewards

USELESS, NO_TASK = -0.5, -1.0
"""Absolute Zero: of a task that none or all answers solve, and of a completion without a task."""
INVALID, UNRELATED = -1.0, 0.0
VARIANCE, SIGMA = Fraction(1, 4), 0.1
"""SPICE: the best variance of being right, which half of the answers give, and how fast the reward falls off
it."""


class MeasuredProposal(NamedTuple):
    """What was measured of one completion."""

    right: int | None
    """Answers of the frozen solver that are right; None for a completion that has nothing it may be asked."""
    answers: int = 0
    """Of so many."""
    related: bool = True
    """SPICE: whether the judge says that the question belongs to its document."""
    level: int = 0
    """DARC: the difficulty that was asked for, from 1."""
    document: str = ""
    """DARC: the SHA-256 of the document that was shown."""

    @property
    def accuracy(self) -> Fraction | None:
        return None if self.right is None else Fraction(self.right, self.answers)


def learnability(accuracy: Fraction) -> Fraction:
    """1 − a for a task that some answers solve, 0 for one that none or all do.

    Args:
        accuracy: a, the share of the solver's answers that are right, in [0, 1].
    """
    return 1 - accuracy if accuracy > 0 else Fraction(0)


def proposer_reward(accuracy: Fraction | None) -> float:
    """What a completion of Absolute Zero's challenger earns.

    Args:
        accuracy: of the solver on its task; None where it has no valid one.

    Returns:
        Its learnability where that is above 0, −0.5 for a task without any, −1 for no valid task.
    """
    if accuracy is None:
        return NO_TASK
    return float(learnability(accuracy)) or USELESS


def question_reward(accuracy: Fraction | None, related: bool = True) -> float:
    """What a completion of SPICE's challenger earns.

    Args:
        accuracy: p, the share of the reasoner's answers that agree with the challenger's; None where the
            completion has no valid question.
        related: whether the question is related to the document.

    Returns:
        exp(−(p(1 − p) − 1/4)² / (2 · 0.1²)); 0 for an unrelated question, −1 for no valid one.
    """
    if accuracy is None:
        return INVALID
    if not related:
        return UNRELATED
    return math.exp(-(float(accuracy * (1 - accuracy) - VARIANCE) ** 2) / (2 * SIGMA**2))


def earned(method: str, step: Sequence[MeasuredProposal]) -> list[float] | None:
    """The rewards of a step's completions; None of a method whose rewards do not follow from these.

    Args:
        method: its name, as configured.
        step: (B,) all completions of the step, as they were drawn.
    """
    match method:
        case "absolute-zero":
            return [proposer_reward(one.accuracy) for one in step]
        case "spice":
            return [question_reward(one.accuracy, one.related) for one in step]
        case "darc":
            ranked = [Measured(one.document, one.level, one.accuracy) for one in step]
            return [float(reward) for reward in ranked_rewards(ranked)]
        case _:
            return None
