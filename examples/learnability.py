"""Learnability, p(1 − p): a question is worth most where the solver is right half of the time.

Sampling for learnability draws levels by it (Rutherford and others, 2024); Absolute Zero rewards the writer
of its tasks for those that are neither always nor never solved. Only the draw is replaced: ε stays the
paper's.
"""

from bisect import bisect_right
from collections.abc import Mapping
from fractions import Fraction
from itertools import accumulate
from random import Random

from diagevo.equations.policy import Frequency, Known, ScheduledCause
from diagevo.equations.states import Tally

UNSEEN = Fraction(1, 2)
"""p of a cause that no question aimed at yet: as learnable as can be."""
GRAIN = 1_000_000
"""Weights are whole numbers, so that every machine draws alike."""


class Learnability(Frequency):
    """A cause by p(1 − p), p the mean agreement on the questions that aimed at it last."""

    def draw(self, rng: Random, epsilon: Fraction, known: Known) -> ScheduledCause | None:
        if rng.randrange(epsilon.denominator) < epsilon.numerator:
            return None
        edges = list(accumulate(weight(cause.cause_id, known.votes) for cause in known.active))
        return known.active[bisect_right(edges, rng.randrange(edges[-1]))]


def weight(cause_id: str, votes: tuple[Mapping[str, Tally], ...]) -> int:
    """p(1 − p) in millionths, one at least: a cause that is always right may have been a lucky guess."""
    last = next((of_round[cause_id] for of_round in reversed(votes) if cause_id in of_round), None)
    p = UNSEEN if last is None else last.score
    return max(1, int(p * (1 - p) * GRAIN))
