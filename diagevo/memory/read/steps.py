"""Steps of training, as rows of `v_step_metric`."""

from dataclasses import dataclass

from diagevo.memory.history import History
from diagevo.memory.read.asking import ask

MEASURED = ("reward", "loss", "entropy", "grad_norm", "kl")
"""What a step measured, in the order in which it is shown."""


@dataclass(frozen=True, slots=True)
class StepMetric:
    """One step that counts; None is what was not measured."""

    round: int
    stage: str
    attempt: int
    step: int
    completions: int
    reward: float
    """Mean over the completions."""
    loss: float | None
    entropy: float | None
    grad_norm: float | None
    kl: float | None


def step_metrics(history: History) -> list[StepMetric]:
    """Of all phases, in the order in which they were played."""
    return ask(history, "v_step_metric", StepMetric, order="round, position")
