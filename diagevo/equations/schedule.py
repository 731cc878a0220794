"""How much is explored freely, and which causes are aimed at, in integers and fractions."""

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction


def reference(known: int | None, failures: int) -> int | None:
    """F₁: once known it stays; until then F itself is, where it is above 0. The paper's round 1 is the first
    round with failures."""
    return failures or None if known is None else known


def z(failures: int, reference: int | None) -> Fraction | None:
    """Equation 1, z: F / F₁. None while no round had failures."""
    return Fraction(failures, reference) if reference else None


def epsilon(failures: int, reference: int | None, k: Fraction) -> Fraction:
    """Equation 1, ε: 1 / (1 + z/k), the share of free exploration. Returns a Fraction in (0, 1]; 1 where
    F = 0."""
    if failures == 0:
        return Fraction(1)
    ratio = z(failures, reference)
    if ratio is None:
        raise ValueError("failures without a reference round")
    return 1 / (1 + ratio / k)


def probability(frequency: int, failures: int) -> Fraction:
    """Equation 1, p: f(e) / F. 0 where F = 0: nothing is aimed at then."""
    return Fraction(frequency, failures) if failures else Fraction(0)


def probabilities(frequencies: Mapping[str, int]) -> dict[str, Fraction]:
    """p of the Active causes. Empty where F = 0. The values sum to 1."""
    failures = sum(frequencies.values())
    return {cause: probability(f, failures) for cause, f in frequencies.items() if f}


def aimed_share(epsilon: Fraction, p: Fraction) -> Fraction:
    """Equation 2, the weight of a cause: (1 − ε)·p(e), its share of all questions."""
    return (1 - epsilon) * p


def draw(rng: random.Random, epsilon: Fraction, edges: Sequence[int]) -> int | None:
    """Equation 2, one draw: None for free exploration, else the place of the cause that is aimed at.

    `edges` are the running sums of the Active causes' frequencies. Whole numbers only: free with probability
    ε, and a cause by its share of F, so that the same seed gives the same draws everywhere.
    """
    if not edges or rng.randrange(epsilon.denominator) < epsilon.numerator:
        return None
    return bisect_right(edges, rng.randrange(edges[-1]))
