"""The schedule of a round, and the aim of each prompt.

The draw uses `random.Random`, seeded by a text of seed and round, and only its `randrange`: the same seed
gives the same draws, and a longer draw begins with the shorter one.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from diagevo.equations.policy import Frequency, Known, Policy, ScheduledCause, shares
from diagevo.equations.schedule import Share
from diagevo.equations.settings import Stitching
from diagevo.equations.states import Tally
from diagevo.errors import ConfigError
from diagevo.memory.events import Mode

PAPER = Frequency()


@dataclass(frozen=True, slots=True)
class Draw:
    """The aim of one prompt of the challenger. Texts: the causes' descriptions and their nodes' labels."""

    index: int
    mode: Mode
    cause_id: str | None = None
    cause: str | None = None
    node: str | None = None
    stitched_cause_id: str | None = None
    stitched_cause: str | None = None
    stitched_node: str | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """ε and p of one round, with the memory as committed in the round before."""

    round: int
    epsilon: Fraction
    causes: tuple[ScheduledCause, ...]
    stitching: Stitching = "node"
    policy: Policy = PAPER
    """The policy that draws."""
    reference: int | None = None
    """F₁, k and the votes of the rounds before: for a policy that asks for them."""
    k: Fraction = Fraction(1, 2)
    votes: tuple[Mapping[str, Tally], ...] = ()

    @property
    def frequencies(self) -> dict[str, int]:
        """f of every Active cause, in order of number."""
        return {c.cause_id: c.frequency for c in self.causes if not c.mastered}

    @property
    def failures(self) -> int:
        """F: the sum of the Active causes' frequencies."""
        return sum(self.frequencies.values())

    @property
    def known(self) -> Known:
        active = tuple(cause for cause in self.causes if not cause.mastered)
        weights = tuple(share.weight for share in self.shares.values())
        return Known(
            round=self.round,
            failures=self.failures,
            reference=self.reference,
            k=self.k,
            active=active,
            votes=self.votes,
            weights=weights,
        )

    @property
    def shares(self) -> dict[str, Share]:
        """p of every Active cause, in order of number."""
        return shares(self.policy, self.frequencies)

    def partners(self, cause: ScheduledCause) -> tuple[ScheduledCause, ...]:
        """The Mastered causes that may be stitched to `cause`: those of its node, of any, or none."""
        if self.stitching == "off":
            return ()
        anywhere = self.stitching == "random"
        return tuple(c for c in self.causes if c.mastered and (anywhere or c.node_id == cause.node_id))

    def draw(self, n: int, *, seed: int) -> list[Draw]:
        """Draw a mode and its causes for each prompt.

        Args:
            n: Prompts.
            seed: The same seed gives the same draws, and a longer draw begins with the shorter one.

        Returns:
            n independent draws.

        Raises:
            ConfigError: n is below 0, or one of them is no int.
        """
        if type(n) is not int or n < 0 or type(seed) is not int:
            raise ConfigError(
                f"draw({n!r}, seed={seed!r})", hint="it is draw(n, seed=…): n from 0, both an int"
            )
        rng = random.Random(f"{seed}.{self.round}")
        known = self.known
        partners: dict[str, Sequence[ScheduledCause]] = {}
        draws: list[Draw] = []
        for index in range(n):
            cause = self.policy.draw(rng, self.epsilon, known) if known.active else None
            if cause is None:
                draws.append(Draw(index, "free"))
                continue
            if cause.cause_id not in partners:
                partners[cause.cause_id] = self.partners(cause)
            others = partners[cause.cause_id]
            if not others:
                draws.append(Draw(index, "targeted", cause.cause_id, cause.description, cause.node))
                continue
            other = others[rng.randrange(len(others))]
            draws.append(
                Draw(
                    index=index,
                    mode="stitched",
                    cause_id=cause.cause_id,
                    cause=cause.description,
                    node=cause.node,
                    stitched_cause_id=other.cause_id,
                    stitched_cause=other.description,
                    stitched_node=other.node,
                )
            )
        return draws
