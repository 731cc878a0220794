"""A phase on ranks of the CPU under FSDP2, which accelerate turns on for GPUs alone.

`main` is one rank, with START and FOLDER as arguments, in torchrun's environment. With SHARDED set it
plays under FSDP as `accelerate/fsdp.yaml` says; without, the same phase under DDP. KILL is the step after
which it kills itself, STALE another model's folder that it samples with, LONG how many tokens it may draw,
STOP a step in which rank 1 is to stop, in the midst of its tenth token; no checkpoint is due before.
GRADIENTS is a file for those of the first update, STATE one for what trains and AdamW's moments as step 3
begins. WRITE is a step whose checkpoint rank 1 does not write whole: it kills itself. With LOAD set it ends
once policy and reference are loaded.
"""

import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from diagevo.config.models import HardwareConfig
from diagevo.progress import StopFlag
from diagevo.training.phase import TrainingSummary
from diagevo.training.ranks import accelerate_file
from diagevo.training.worker import _let_ranks_load_each_others_files
from tests.sampling.tiny_model import VOCABULARY
from tests.training import phase


def as_the_file_says() -> dict[str, str]:
    """What `accelerate launch` hands on of our own file."""
    said = yaml.safe_load(accelerate_file(Path("fsdp")).read_text())["fsdp_config"]
    handed = {name.upper(): str(value).lower() for name, value in said.items()}
    handed["FSDP_AUTO_WRAP_POLICY"] = said["fsdp_auto_wrap_policy"]
    handed["FSDP_STATE_DICT_TYPE"] = said["fsdp_state_dict_type"]
    return handed | {"ACCELERATE_USE_FSDP": "true", "SHARDED": "1"}


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


def _private() -> int:
    """Bytes of this process alone: files that it reads and the disk's cache has are not among them."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("Anonymous:")]
    return 1024 * int(line.split()[1])


def _save_gradients(file: Path) -> None:
    """Those of the first update, whole."""
    from safetensors.torch import save_file

    from diagevo.training.saving import SavesAndStops

    def save(self: Any, args: Any, state: Any, control: Any, **given: Any) -> None:
        if state.global_step == 0:
            found = {name: weight.grad.full_tensor() for name, weight in given["model"].named_parameters()}
            if os.environ["RANK"] == "0":
                save_file(found, file)

    SavesAndStops.on_pre_optimizer_step = save


def _save_state(file: Path) -> None:
    from safetensors.torch import save_file

    from diagevo.training.saving import SavesAndStops, named

    def save(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 2:
            tensors: dict[str, Any] = named(*self._trainer._state())
            found = {n: t.full_tensor() if hasattr(t, "full_tensor") else t for n, t in tensors.items()}
            if os.environ["RANK"] == "0":
                save_file(found, file)

    SavesAndStops.on_step_begin = save


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


def _count_updates(trainer: Any) -> list[tuple[int, ...]]:
    """The most bytes above what is held all the time, of each forward and backward pass, with its sizes."""
    from tests.training.allocated import Allocated

    loss_of, backward, found = trainer.compute_loss, trainer.accelerator.backward, []

    def counted_loss(model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
        found.append((Allocated(), *inputs["prompt_ids"].shape, inputs["completion_ids"].size(1)))
        found[-1][0].__enter__()
        return loss_of(model, inputs, *rest, **named)

    def counted_backward(*given: Any, **named: Any) -> None:
        backward(*given, **named)
        found[-1][0].__exit__(None, None, None)

    trainer.compute_loss, trainer.accelerator.backward = counted_loss, counted_backward
    return found


def as_on_a_gpu(put: Callable[[Any, str, Any], None], vocabulary: int) -> None:
    """Layers are computed again, and the head's tiles are no wider than the vocabulary. `put`: setattr."""
    import trl.trainer.utils

    from diagevo.training import grpo

    settings = grpo.trl_settings

    def with_checkpointing(*given: Any) -> Any:
        found = settings(*given)
        found.gradient_checkpointing = True
        return found

    put(grpo, "trl_settings", with_checkpointing)
    put(trl.trainer.utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", vocabulary)


def _sample_with(folder: str) -> None:
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    from diagevo.training import trainer

    other, right = AutoModelForCausalLM.from_pretrained(folder, dtype="float32"), trainer.draw
    trainer.draw = lambda model, *rest: right(other, *rest)


def _stop_in(step: int, stop: StopFlag) -> None:
    """In the midst of a forward pass of `draw`: before its second layer."""
    from diagevo.training import trainer

    right, calls = trainer.draw, []

    def stopping(model: Any, *rest: Any) -> Any:
        calls.append(model)
        if len(calls) != step or os.environ["RANK"] != "1":
            return right(model, *rest)
        passes: list[int] = []

        def counted(*_: Any) -> None:
            passes.append(1)
            if len(passes) == 10:
                stop.set_overdue()

        hook = model.model.layers[0].register_forward_hook(counted)
        try:
            return right(model, *rest)
        finally:
            hook.remove()

    trainer.draw = stopping


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

    as_on_a_gpu(setattr, len(VOCABULARY))
    build = trainer.PhaseTrainer.__init__
    built: list[Any] = []
    updates: list[Any] = []

    def build_and_tell(self: Any, **given: Any) -> None:
        before = _private()
        build(self, **given)
        if "LOAD" in os.environ:
            print("LOADED", _private() - before, flush=True)
            os._exit(0)
        built.append(self)
        updates.append(_count_updates(self))
        parts = [module for module in self.ref_model.modules() if isinstance(module, FSDPModule)]
        if os.environ["RANK"] == "0":
            print("PARTS", len(parts), flush=True)

    trainer.PhaseTrainer.__init__ = build_and_tell
    if gradients := os.environ.get("GRADIENTS"):
        _save_gradients(Path(gradients))
    if state := os.environ.get("STATE"):
        _save_state(Path(state))
    if (written := os.environ.get("WRITE")) and os.environ["RANK"] == "1":
        phase.kill_while_writing(int(written))
    if stale := os.environ.get("STALE"):
        _sample_with(stale)
    killed_at = int(os.environ.get("KILL", "0"))
    stop, settings = StopFlag(), phase.SETTINGS
    if stopped_in := int(os.environ.get("STOP", "0")):
        settings = settings.model_copy(update={"save_steps": 9})
        _stop_in(stopped_in, stop)

    def on_step(step: int, rollouts: Any, rewards: Any) -> None:
        if step == 1:
            lengths = [len(rollout.text) for rollout in rollouts]
            print("LONGEST", max(lengths[:3]), max(lengths[3:]), flush=True)  # of three on each rank
        if step > 1 and built:  # of rank 0
            _tell_bytes(built.pop())
        if killed_at and step > killed_at:
            phase.wait_until_saved(folder / "work", killed_at)
            os.kill(os.getpid(), signal.SIGKILL)

    hardware = HardwareConfig(device="cpu", processes=int(os.environ["WORLD_SIZE"]), threads=1)
    longest = int(os.environ.get("LONG", phase.SAMPLING.max_new_tokens))
    sampling = phase.SAMPLING.model_copy(update={"max_new_tokens": longest})
    changes = {"hardware": hardware, "sampling": sampling, "settings": settings}
    summary = phase.trained(start, folder, on_step=on_step, stop=stop, **changes)
    if os.environ["RANK"] == "0":
        counted, *sizes = max(updates[0], key=lambda update: update[0].most)
        print("UPDATE", counted.most, *sizes, flush=True)
    return summary


def count_groups() -> None:
    """Print how many process groups there are before the first phase of rank 0 of four, in pairs that shard,
    and after each of three, with the start's model loaded in shards. No collective is played."""
    from accelerate import Accelerator, PartialState
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    from diagevo.training.sharding import loaded_in_shards
    from diagevo.training.worker import _forget_the_trainer

    distributed.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    _shard_on_the_cpu()
    PartialState(cpu=True)
    for _ in range(3):
        settings = SimpleNamespace(mixed_precision="no", model_init_kwargs={})
        with loaded_in_shards(settings):
            AutoModelForCausalLM.from_pretrained(sys.argv[1], **settings.model_init_kwargs)
        Accelerator()  # the trainer's
        _forget_the_trainer()
        print("GROUPS", len(distributed.distributed_c10d._world.pg_map), flush=True)


def main() -> None:
    summary = play(Path(sys.argv[1]), Path(sys.argv[2]))
    if os.environ["RANK"] == "0":
        kls = [entry["kl"] for entry in summary.log]
        print("KL", *kls, flush=True)
        print("GAP", summary.measures.sampling_gap, flush=True)
    os._exit(0)  # gloo's threads would be waited for
