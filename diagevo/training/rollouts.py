"""The plain values that a GRPO phase and its caller exchange. No torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from diagevo.sampling.sampler import Prompt
from diagevo.training.measures import PhaseMeasures


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A prompt to practise. `row_id` names it in rollouts and is unique in a phase."""

    row_id: str
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion of a row's group: `sample` 0..G-1, `step` from 1. `truncated`: it has no end mark."""

    row_id: str
    sample: int
    step: int
    text: str
    truncated: bool


class Reward(Protocol):
    """A reward in two halves, so that several ranks share the costly one.

    `measure` sees the rollouts of one rank and returns a JSON value for each. `rewards` sees the rollouts of
    the whole step in order, with their measures, on every rank; it must be a pure function of them.
    """

    def measure(self, rollouts: Sequence[Rollout]) -> list[Any]: ...

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[Any]) -> list[float]: ...


OnStep = Callable[[int, list[Rollout], list[float]], None]


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """What a phase did: `final` is the folder of the new weights, `resumed_from` the step it went on from.

    `log` holds the trainer's metrics, a dict for each step (loss, reward, kl, entropy, grad_norm, ...).
    """

    steps: int
    final: Path
    resumed_from: int | None
    measures: PhaseMeasures
    log: tuple[dict[str, float], ...] = field(default=(), compare=False)
