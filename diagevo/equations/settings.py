"""The parameters of the equations, including those of ablations. Plain values."""

from fractions import Fraction
from typing import Literal

import msgspec

Stitching = Literal["node", "random", "off"]
Variant = Literal["double", "absolute", "none"]


class Settings(msgspec.Struct, frozen=True):
    """Of promotion (Equation 7), of the schedule (Equation 1) and of the draws."""

    theta_up: Fraction
    """θ_up: the mean p₁ from which on a cause is Mastered, in [0, 1]."""
    promotion_questions: int
    """Minimum questions for a promotion; the paper's |P| > 0 is 1."""
    state_updates: bool
    """Whether causes are promoted at all."""
    k: Fraction
    """Free and targeted shares are equal at z = k; above 0."""
    policy: str
    """A name of `policy.BUILT_IN`, or the place of a class."""
    fixed_epsilon: Fraction | None
    """ε of the policy `fixed`."""
    stitching: Stitching
    """Where a targeted cause's Mastered partner comes from: its node, anywhere, or none."""
    seed: int
    """Seed of the draws, unless a round is opened with another."""


class Filter(msgspec.Struct, frozen=True, cache_hash=True):
    """Of Equation 3. The variant `absolute` leaves τ out, `none` both constraints."""

    p_low: Fraction
    p_high: Fraction
    tau: Fraction
    variant: Variant = "double"
