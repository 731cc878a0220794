"""The challenger's rewards in Absolute Zero, SPICE and DARC, which follow from the measurements of each
completion. Pure, so that an audit can recompute them from the log."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from diagevo.equations.darc_rewards import Measured, ranked_rewards

USELESS, NO_TASK = -0.5, -1.0
"""Absolute Zero: for a task that none or all answers solve, and for a completion without a task."""
INVALID, UNRELATED = -1.0, 0.0
VARIANCE, SIGMA = Fraction(1, 4), 0.1
"""SPICE: the target variance of correctness, reached when half of the answers are right, and the width of
the reward around it."""


class MeasuredProposal(NamedTuple):
    """The measurements of one completion."""

    right: int | None
    """Answers of the frozen solver that are right; None for a completion without a usable question."""
    answers: int = 0
    """Of so many."""
    related: bool = True
    """SPICE: whether the judge says that the question belongs to its document."""
    level: int = 0
    """DARC: the requested difficulty, from 1."""
    document: str = ""
    """DARC: the SHA-256 of the document that was shown."""

    @property
    def accuracy(self) -> Fraction | None:
        return None if self.right is None else Fraction(self.right, self.answers)


def learnability(accuracy: Fraction) -> Fraction:
    """1 − a for a task that some answers solve, 0 if none or all do.

    Args:
        accuracy: a, the share of the solver's answers that are right, in [0, 1].
    """
    return 1 - accuracy if accuracy > 0 else Fraction(0)


def proposer_reward(accuracy: Fraction | None) -> float:
    """The reward of a completion by Absolute Zero's challenger.

    Args:
        accuracy: of the solver on its task; None if it has no valid one.

    Returns:
        Its learnability if above 0, −0.5 for a task without any, −1 for no valid task.
    """
    if accuracy is None:
        return NO_TASK
    return float(learnability(accuracy)) or USELESS


def question_reward(accuracy: Fraction | None, related: bool = True) -> float:
    """The reward of a completion by SPICE's challenger.

    Args:
        accuracy: p, the share of the reasoner's answers that agree with the challenger's; None if the
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
    """The rewards of a step's completions; None for a method whose rewards do not follow from these.

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
