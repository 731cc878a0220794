"""The share of free exploration, and the choice of causes, in integers and fractions."""

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


def reference(known: int | None, failures: int) -> int | None:
    """F₁, the reference of z. The paper's round 1 stands for the first round with failures.

    Args:
        known: F₁ as recorded, None while no round had failures.
        failures: F of the round that is committed.

    Returns:
        `known` once there is one; before that F itself if it is above 0, else None.
    """
    return failures or None if known is None else known


def z(failures: int, reference: int | None) -> Fraction | None:
    """Equation 1, z: F / F₁.

    Args:
        failures: F, the sum of f over the Active causes.
        reference: F₁, None while no round had failures.

    Returns:
        A Fraction of at least 0, None without a reference.
    """
    return Fraction(failures, reference) if reference else None


def epsilon(failures: int, reference: int | None, k: Fraction) -> Fraction:
    """Equation 1, ε: 1 / (1 + z/k), the share of free exploration.

    Args:
        failures: F, the sum of f over the Active causes.
        reference: F₁; needed if F is above 0.
        k: balance of free and targeted questions, above 0; they are equal at z = k.

    Returns:
        A Fraction in (0, 1]; 1 if F = 0.

    Raises:
        ValueError: if F is above 0 and there is no reference.
    """
    if failures == 0:
        return Fraction(1)
    ratio = z(failures, reference)
    if ratio is None:
        raise ValueError("failures without a reference round")
    return 1 / (1 + ratio / k)


@dataclass(frozen=True, slots=True)
class Share:
    """A cause's share of the targeted questions: its weight over the sum of all weights."""

    weight: int
    total: int

    @property
    def p(self) -> Fraction:
        return Fraction(self.weight, self.total)

    def __str__(self) -> str:
        return f"{self.weight}/{self.total}"


def aimed_share(epsilon: Fraction, p: Fraction) -> Fraction:
    """Equation 2, the weight of a cause: (1 − ε)·p(e).

    Args:
        epsilon: ε, the share of free exploration.
        p: the cause's share of the targeted questions.

    Returns:
        Its share of all questions, in [0, 1).
    """
    return (1 - epsilon) * p


def draw(rng: random.Random, epsilon: Fraction, edges: Sequence[int]) -> int | None:
    """Equation 2, one draw: free with probability ε, else a cause by its share of the weights.

    Only whole numbers are used, so the same seed gives the same draws on every machine.

    Args:
        rng: the source of randomness; one or two numbers are taken from it.
        epsilon: ε, in (0, 1] or a policy's value in [0, 1].
        edges: running sums of the Active causes' weights, rising; the last one is their sum.

    Returns:
        None for free exploration, else the index in `edges` of the targeted cause.
    """
    if not edges or rng.randrange(epsilon.denominator) < epsilon.numerator:
        return None
    return bisect_right(edges, rng.randrange(edges[-1]))
