"""A custom policy: a class in a file, whose answers are checked before they are recorded."""

import runpy
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import cast

from diagevo.equations.policy import Known, Policy, ScheduledCause
from diagevo.errors import ConfigError


def load(name: str) -> Policy:
    """Run the file and instantiate its class. Raises ConfigError if it fails or is not a policy."""
    file, _, wanted = name.rpartition(":")
    try:
        made = runpy.run_path(str(Path(file).expanduser()))[wanted]()
        _ = made.epsilon, made.draw
    except Exception as error:  # whatever somebody's code raises, told with its place
        raise ConfigError(
            f"schedule.policy {name} cannot be made: {type(error).__name__}: {error}",
            hint="name a file and its class, folder/file.py:Class; the class is made without arguments and"
            " has two methods: epsilon(known) and draw(rng, epsilon, known)",
        ) from error
    return Own(name, made)


class Own:
    """A user's policy, whose answers are checked before they are recorded."""

    def __init__(self, name: str, policy: Policy) -> None:
        self._name = name
        self._policy = policy

    def epsilon(self, known: Known) -> Fraction:
        told: object = self._asked("epsilon", known)
        if isinstance(told, bool) or not isinstance(told, int | Fraction) or not 0 <= told <= 1:
            raise ConfigError(
                f"schedule.policy {self._name}: epsilon gave {told!r}",
                hint="it must be exact and from 0 to 1: a Fraction",
            )
        return Fraction(told)

    def draw(self, rng: Random, epsilon: Fraction, known: Known) -> ScheduledCause | None:
        told: object = self._asked("draw", rng, epsilon, known)
        if told is not None and told not in known.active:
            raise ConfigError(
                f"schedule.policy {self._name}: draw gave {told!r}",
                hint="it must be one of known.active, or None for free exploration",
            )
        return cast("ScheduledCause | None", told)

    def _asked(self, method: str, *arguments: object) -> object:
        try:
            return getattr(self._policy, method)(*arguments)
        except Exception as error:  # whatever somebody's code raises, told with its place
            raise ConfigError(
                f"schedule.policy {self._name}: {method} failed: {type(error).__name__}: {error}",
                hint="nothing was recorded; fix the class, then resume",
            ) from error
