"""Muon in float32: momentum whose step is orthogonalised, for the matrices of a small model on a CPU.

As `torch.optim.Muon`, which orthogonalises in bfloat16: slow on a CPU without bfloat16 units. Matrices of one
shape are orthogonalised together. Step sizes are matched to AdamW's by 0.2 * sqrt(max(rows, columns)).
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5


def orthogonalised(matrices_N_R_C: torch.Tensor) -> torch.Tensor:
    """Newton-Schulz: each matrix with its singular values moved to about 1 (0.7 to 1.2)."""
    x = matrices_N_R_C
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; weight decay decoupled."""

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        lr: float = 1e-2,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    # torch types `step` as overloads of which only the one without a closure is meant here.
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.Tensor]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            for (rows, columns), parameters in by_shape.items():
                directions = torch.stack([self._direction(p, group["momentum"]) for p in parameters])
                size = group["lr"] * 0.2 * max(rows, columns) ** 0.5
                for parameter, update in zip(parameters, orthogonalised(directions), strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-size)

    def _direction(self, parameter: torch.Tensor, momentum: float) -> torch.Tensor:
        assert parameter.grad is not None
        buffer = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
        buffer.lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(buffer, momentum)
