"""The metrics of a phase's steps, under TRL's names: over the tokens, completions and rollouts of all
ranks."""

from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.utils import nanmax, nanmin

from diagevo.training.measures import COMPLETIONS, CUT_OFF, HIGHEST, LOWEST, SAMPLING_DIFFERENCE
from diagevo.training.phase import Rollout


class StepMetrics:
    """Adds to the metrics that TRL logs after each step, one value per micro-batch; their mean is logged."""

    def __init__(self, accelerator: Any, metrics: dict[str, list[float]]) -> None:
        self._accelerator = accelerator
        self._metrics = metrics

    def mean(self, name: str, values: torch.Tensor, mask: torch.Tensor) -> None:
        """Over the tokens of all ranks, whatever padding holds."""
        both = torch.stack([torch.where(mask.bool(), values, 0).sum(), mask.sum().float()])
        total, count = self._accelerator.reduce(both, reduction="sum")
        self._metrics[name].append((total / count.clamp(min=1)).item())

    def clipped(self, low: torch.Tensor, high: torch.Tensor, mask: torch.Tensor) -> None:
        """Shares of tokens, and the completions with the fewest and the most."""
        for name, found in (("low", low), ("high", high), ("region", low | high)):
            self.mean(f"clip_ratio/{name}_mean", found.float(), mask)
        for name, found, worst in (("low_min", low, nanmin), ("high_max", high, nanmax)):
            here = worst((found * mask).sum(1) / mask.sum(1))  # a rank may have more rows than another
            shares = self._accelerator.gather(here)
            self._metrics[f"clip_ratio/{name}"].append(worst(shares).item())

    def apart(self, apart: torch.Tensor, mask: torch.Tensor) -> None:
        """How far the sampler's log-probabilities are: this jumps where it computes otherwise.

        TRL logs it together with a correction of the loss that we do not want, at the price of one more pass.
        """
        apart = apart[mask.bool() & ~apart.isnan()]
        mean = self._accelerator.gather(apart.mean() if len(apart) else apart.new_zeros(()))
        self._metrics[SAMPLING_DIFFERENCE].append(mean.mean().item())

    def rollouts(self, rollouts: Sequence[Rollout], rewards: Sequence[float]) -> None:
        """What `measures.py` reads of a step, without padding."""
        cut_off = sum(rollout.truncated for rollout in rollouts)
        found = {LOWEST: min(rewards), HIGHEST: max(rewards), COMPLETIONS: len(rollouts), CUT_OFF: cut_off}
        for name, value in found.items():
            self._metrics[name].append(value)
