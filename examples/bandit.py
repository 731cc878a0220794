"""A bandit over skill nodes, paid by learning progress: it goes where agreement changes.

After Matiisen and others, Teacher-Student Curriculum Learning (2017), the online variant: an arm's value is
a moving mean of its reward, which is how much its score changed between two tries, up or down: what is
forgotten is to be practised too. Arms are drawn in proportion to it. Only the draw is replaced: ε stays the
paper's.
"""

from bisect import bisect_right
from collections.abc import Mapping
from fractions import Fraction
from itertools import accumulate, pairwise
from random import Random

from diagevo.equations.policy import Frequency, Known, ScheduledCause
from diagevo.equations.states import Tally

RATE = Fraction(1, 2)
"""α, what the newest reward counts in an arm's value."""
FLOOR = Fraction(1, 20)
"""An arm's least weight, so that each is tried again."""
GRAIN = 1_000_000
"""Weights are whole numbers, so that every machine draws alike."""


class Bandit(Frequency):
    """A node by its learning progress, and in it a cause by its share of the failures."""

    def draw(self, rng: Random, epsilon: Fraction, known: Known) -> ScheduledCause | None:
        if rng.randrange(epsilon.denominator) < epsilon.numerator:
            return None
        nodes: dict[str, list[ScheduledCause]] = {}
        for cause in known.active:
            nodes.setdefault(cause.node_id, []).append(cause)
        arms = list(nodes.values())
        edges = list(accumulate(int(weight(arm, known.votes) * GRAIN) for arm in arms))
        arm = arms[bisect_right(edges, rng.randrange(edges[-1]))]
        edges = list(accumulate(cause.frequency for cause in arm))
        return arm[bisect_right(edges, rng.randrange(edges[-1]))]


def weight(arm: list[ScheduledCause], votes: tuple[Mapping[str, Tally], ...]) -> Fraction:
    """Of an arm: 1 at first, then the moving mean of |change of its score| over the rounds that tried it."""
    scores = [score for of_round in votes if (score := _score(arm, of_round)) is not None]
    value = Fraction(1)
    for before, now in pairwise(scores):
        value += RATE * (abs(now - before) - value)
    return max(FLOOR, value)


def _score(arm: list[ScheduledCause], votes: Mapping[str, Tally]) -> Fraction | None:
    """Mean agreement on a round's questions that aimed at the arm's causes."""
    tried = [votes[cause.cause_id] for cause in arm if cause.cause_id in votes]
    questions = sum(tally.questions for tally in tried)
    if not questions:
        return None
    return sum((tally.score * tally.questions for tally in tried), Fraction(0)) / questions
