"""A policy of the schedule: the share of free exploration, and the aim of each other prompt. The
paper's is one of them; another is a class with the same interface, named in a configuration.

A policy reads only committed data, so that anyone with the log can repeat its decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from random import Random
from typing import Protocol

from diagevo.equations import schedule
from diagevo.equations.schedule import Share
from diagevo.equations.settings import Settings
from diagevo.equations.states import Tally

BUILT_IN = ("frequency", "free", "targeted", "fixed")
"""Names of the paper's policy and of its ablations. Any other name is `file.py:Class`."""


@dataclass(frozen=True, slots=True)
class ScheduledCause:
    """A cause as committed in the round before."""

    cause_id: str
    description: str
    node_id: str
    node: str
    mastered: bool
    frequency: int


@dataclass(frozen=True)
class Known:
    """What a policy may read: the memory as committed, and how questions were answered."""

    round: int
    """The round to draw for."""
    failures: int
    """F: the sum of f over the Active causes."""
    reference: int | None
    """F₁."""
    k: Fraction
    active: tuple[ScheduledCause, ...] = ()
    """In order of number."""
    votes: tuple[Mapping[str, Tally], ...] = ()
    """A mapping for each committed round: P_t(e) of the causes that it aimed at, Mastered by now or not. They
    begin with the first round that such a policy of one's own was named in."""
    weights: tuple[int, ...] = ()
    """What p of each Active cause is proportional to; f by default."""

    @cached_property
    def edges(self) -> list[int]:
        """The running sums of the Active causes' weights."""
        return list(accumulate(self.weights or (cause.frequency for cause in self.active)))


class Policy(Protocol):
    """Made without arguments, once for each round. Both methods must be deterministic in their arguments."""

    def epsilon(self, known: Known) -> Fraction:
        """A round's share of free exploration.

        Not called if F = 0: then it is 1.

        Args:
            known: What is committed.

        Returns:
            A fraction from 0 to 1.
        """
        ...

    def draw(self, rng: Random, epsilon: Fraction, known: Known) -> ScheduledCause | None:
        """What one prompt aims at. Not called if there is no Active cause.

        Args:
            rng: The only source of chance.
            epsilon: The result of `epsilon` for the round.
            known: What is committed.

        Returns:
            One of `known.active`, or None for free exploration.
        """
        ...


@dataclass(frozen=True, slots=True)
class Frequency:
    """The paper's policy, Equations 1 and 2: ε by F / F₁, a cause by its share of F."""

    def weight(self, frequency: int) -> int:
        """What p of an Active cause is proportional to, as a function of its f: a whole number above 0."""
        return frequency

    def p_formula(self, f: str, total: str) -> str:
        """p of an Active cause in symbols or numbers; what changes `weight` changes this."""
        return f"{f}/{total}"

    @property
    def p_words(self) -> str:
        """What p is, in words."""
        return "its share of F"

    def epsilon(self, known: Known) -> Fraction:
        return schedule.epsilon(known.failures, known.reference, known.k)

    def epsilon_formula(self, first: str, failures: str, k: str) -> str | None:
        """ε in symbols or numbers, given those of F₁, F and k; None: it does not follow from them."""
        return f"{first}/({first} + {failures}/{k})"

    @property
    def epsilon_words(self) -> str:
        """How ε is determined, in words."""
        return "the larger F is beside F₁, the smaller it is"

    def draw(self, rng: Random, epsilon: Fraction, known: Known) -> ScheduledCause | None:
        place = schedule.draw(rng, epsilon, known.edges)
        return None if place is None else known.active[place]


@dataclass(frozen=True, slots=True)
class Held(Frequency):
    """An ablation: ε is fixed, and a cause is drawn as in the paper."""

    at: Fraction

    def epsilon(self, known: Known) -> Fraction:
        return self.at

    def epsilon_formula(self, first: str, failures: str, k: str) -> str | None:
        return None

    @property
    def epsilon_words(self) -> str:
        return "it is held"


@dataclass(frozen=True, slots=True)
class AsRecorded(Frequency):
    """Stands for a user's class when a log is read, which runs no code: ε is in the log, and only the class
    knows p of a cause. The paper's p is shown instead."""

    name: str

    @property
    def p_words(self) -> str:
        return f"its share of F: the paper's p, where {self.name} draws"

    def epsilon_formula(self, first: str, failures: str, k: str) -> str | None:
        return None

    @property
    def epsilon_words(self) -> str:
        return "it is as recorded"


def built_in(settings: Settings) -> Frequency | None:
    """The policy that the settings name.

    Returns:
        A built-in one; None if the name refers to a user's class.
    """
    match settings.policy:
        case "frequency":
            return Frequency()
        case "free":
            return Held(Fraction(1))
        case "targeted":
            return Held(Fraction(0))
        case "fixed":
            assert settings.fixed_epsilon is not None
            return Held(settings.fixed_epsilon)
        case _:
            return None


def described(settings: Settings) -> Frequency:
    """The policy that the settings name, as described on a screen or page."""
    return built_in(settings) or AsRecorded(settings.policy)


def shares(policy: Policy | None, frequencies: Mapping[str, int]) -> dict[str, Share]:
    """Equation 1, p: f(e) / F of every Active cause, or the policy's weight of f over the sum of weights.

    Args:
        policy: the round's. One that is not a `Frequency` has no p; the paper's is used then.
        frequencies: f by cause.

    Returns:
        p by cause, for causes with f above 0. They sum to 1; empty if F = 0, because nothing is targeted.
    """
    weigh = policy.weight if isinstance(policy, Frequency) else Frequency().weight
    weights = {cause: weigh(f) for cause, f in frequencies.items() if f}
    total = sum(weights.values())
    return {cause: Share(weight, total) for cause, weight in weights.items()}


def epsilon_of(policy: Policy, known: Known) -> Fraction:
    """ε of the next round by any policy, in [0, 1]; 1 if F = 0, checked first."""
    return policy.epsilon(known) if known.failures else Fraction(1)


def next_epsilon(settings: Settings, failures: int, reference: int | None) -> Fraction | None:
    """ε of the next round by a built-in policy.

    Args:
        settings: they name the policy.
        failures: F, the sum of f over the Active causes.
        reference: F₁; None before the first commit with a failure, whose F will be F₁.

    Returns:
        A Fraction in [0, 1]; None if the policy is a user's class, whose answer is a fact in the log.
    """
    policy = built_in(settings)
    if failures == 0:
        return Fraction(1)
    return None if policy is None else policy.epsilon(Known(0, failures, reference or failures, settings.k))
