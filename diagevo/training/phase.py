"""One GRPO phase of one policy, and the plain values that it and its caller exchange. No torch."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig, TrainingConfig
from diagevo.errors import ConfigError
from diagevo.progress import StopFlag
from diagevo.sampling.engine import Engine
from diagevo.sampling.sampler import Prompt
from diagevo.training.measures import PhaseMeasures


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """A prompt to practise. `row_id` names it in rollouts and is unique in a phase. `part`: the kind of its
    task, which its advantage may be whitened by."""

    row_id: str
    prompt: Prompt
    part: str = ""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion of a row's group: `sample` 0..G-1, `step` from 1. `truncated`: it has no end mark."""

    row_id: str
    sample: int
    step: int
    text: str
    truncated: bool
    measure: Any = None
    """What its reward was worked out from, once it was."""


class Reward(Protocol):
    """A reward in two halves, so that several ranks share the expensive one.

    `measure` sees the rollouts of one rank and returns a JSON value for each. `rewards` sees the rollouts of
    the whole step in order, with their measures, on every rank; it must be a pure function of them.
    """

    def measure(self, rollouts: Sequence[Rollout]) -> list[Any]: ...

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[Any]) -> list[float]: ...


OnStep = Callable[[int, list[Rollout], list[float]], None]
"""Called once a step with its number, the rollouts of all ranks and their rewards."""
OnUpdate = Callable[[int, Mapping[str, float | None]], None]
"""Called after a step has changed the weights, before it is saved, with the trainer's metrics."""


def no_update(step: int, metrics: Mapping[str, float | None]) -> None:
    """An `OnUpdate` that does nothing."""


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """A reward by name, so that every rank can build its own: `factory` is "package.module:function".

    The function is called with `arguments` (JSON values) as keywords, the stop flag as `stop`, and the vLLM
    of its process, if there is one, as `engine`. It returns a `Reward`.
    """

    factory: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def build(self, stop: StopFlag, engine: Engine | None = None) -> Reward:
        module, _, name = self.factory.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"there is no reward {self.factory!r} ({error}).") from error
        return function(**self.arguments, stop=stop, engine=engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One pass over `rows`, shuffled or `in_order`, from the weights in `start` to those in `output`.

    `start` is only read; it is also the KL reference. `work` holds the resumable checkpoints: a phase resumes
    from the newest complete one and repeats the steps after it.
    """

    start: Path
    rows: tuple[TrainingRow, ...]
    reward: RewardSpec
    settings: GRPOConfig
    sampling: SamplingConfig
    hardware: HardwareConfig
    training: TrainingConfig
    output: Path
    work: Path
    seed: int
    in_order: bool = False

    @property
    def logs(self) -> Path:
        return logs_folder(self.output)


def logs_folder(output: Path) -> Path:
    """The folder of the ranks' output and TensorBoard's files; it outlives the work folder."""
    return output.with_name(f"{output.name}-logs")


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """What a phase did: `final` is the folder of the new weights, `resumed_from` the step it resumed from.

    `log` holds the trainer's metrics, a dict for each step (loss, reward, kl, entropy, grad_norm, ...).
    """

    steps: int
    final: Path
    resumed_from: int | None
    measures: PhaseMeasures
    log: tuple[dict[str, float], ...] = field(default=(), compare=False)
