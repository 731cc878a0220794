"""A phase on two ranks of the CPU under FSDP2, which accelerate turns on for GPUs alone.

`main` is one rank, with START and FOLDER as arguments, in torchrun's environment. With SHARDED set it
plays under FSDP as `accelerate/fsdp.yaml` says; without, the same phase under DDP. KILL as in `phase`.
"""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from diagevo.config.models import HardwareConfig
from diagevo.training.rollouts import TrainingSummary
from diagevo.training.worker import _let_ranks_load_each_others_files
from tests.training import phase


def _shard_on_the_cpu() -> None:
    """Let accelerate take the CPU for a device that FSDP shards on."""
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType

    begin = AcceleratorState.__init__

    def begin_sharded(self: Any, *given: Any, fsdp_plugin: Any = None, **named: Any) -> None:
        begin(self, *given, fsdp_plugin=fsdp_plugin, **named)
        if fsdp_plugin is not None:
            self.distributed_type = DistributedType.FSDP
            self.fsdp_plugin = fsdp_plugin
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP

    AcceleratorState.__init__ = begin_sharded


def _bytes(tensors: list[Any]) -> int:
    """What this rank holds of them."""
    held = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in held)


def _tell_bytes(trainer: Any) -> None:
    """Print what this rank holds when the next update begins: every layer is sharded again by then."""
    from torch.optim import Optimizer

    optimizer: Optimizer = trainer.optimizer.optimizer

    def before_step(*_: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        states = optimizer.state.values()
        held = {
            "weights": weights,
            "Adam": [m for state in states for name, m in state.items() if name.startswith("exp_avg")],
            "reference": list(trainer.ref_model.parameters()),
            "gradients": [weight.grad for weight in weights if weight.grad is not None],
        }
        print("BYTES", *(f"{name} {_bytes(tensors)}" for name, tensors in held.items()), flush=True)

    optimizer.register_step_pre_hook(before_step)


def play(start: Path, folder: Path) -> TrainingSummary:
    import torch
    from accelerate import PartialState

    torch.set_num_threads(1)
    _let_ranks_load_each_others_files()
    if "SHARDED" in os.environ:
        _shard_on_the_cpu()
    PartialState(cpu=True, timeout=timedelta(seconds=120))

    from torch.distributed.fsdp import FSDPModule

    from diagevo.training import trainer

    build = trainer.PhaseTrainer.__init__
    built: list[Any] = []

    def build_with_trls_sampling(self: Any, **given: Any) -> None:
        build(self, **given)
        built.append(self)
        self._own_loop = False  # as under FSDP, so that both play the same rollouts
        parts = [module for module in self.ref_model.modules() if isinstance(module, FSDPModule)]
        if os.environ["RANK"] == "0":
            print("PARTS", len(parts), flush=True)

    trainer.PhaseTrainer.__init__ = build_with_trls_sampling
    killed_at = int(os.environ.get("KILL", "0"))

    def on_step(step: int, rollouts: Any, rewards: Any) -> None:
        if step == 3:  # of rank 0
            _tell_bytes(built[0])
        if killed_at and step > killed_at:
            phase.wait_until_saved(folder / "work", killed_at)
            os.kill(os.getpid(), signal.SIGKILL)

    hardware = HardwareConfig(device="cpu", processes=2, threads=1)
    resume = "RESUME" in os.environ
    return phase.trained(start, folder, on_step=on_step, resume=resume, hardware=hardware)


def main() -> None:
    summary = play(Path(sys.argv[1]), Path(sys.argv[2]))
    if os.environ["RANK"] == "0":
        kls = [entry["kl"] for entry in summary.log]
        print("KL", *kls, flush=True)
    os._exit(0)  # gloo's threads would be waited for
