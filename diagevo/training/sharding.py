"""FSDP2: models sharded while loading, and a policy that samples with whole weights."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch.distributed.fsdp import FSDPModule
from transformers.modeling_utils import PreTrainedModel

from diagevo.errors import ConfigError


def is_sharded() -> bool:
    """Whether accelerate's launcher asked for FSDP."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def refuse_wrong_sharding() -> None:
    """FSDP1 gathers its layers at each token, so all ranks would have to generate equally long; so does
    DeepSpeed, whose checkpoints are also tied to a number of ranks."""
    if os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        raise ConfigError(
            "the accelerate file asks for DeepSpeed, which is not supported.",
            hint="hardware.accelerate_config: fsdp shards what ZeRO-3 does",
        )
    if is_sharded() and os.environ.get("FSDP_VERSION") != "2":
        raise ConfigError(
            "the accelerate file asks for version 1 of FSDP, from which a policy cannot be sampled.",
            hint="set fsdp_version to 2 there",
        )


@contextmanager
def loaded_in_shards(settings: Any) -> Iterator[None]:
    """Within the context a rank reads only its shard of a model, as accelerate would shard it.

    Otherwise each would read the whole policy and reference: eight ranks of an 8B model would hold 488 GiB.
    transformers builds a model without weights, asks `maybe_distribute_model` to shard it, and reads the
    slices of its parameters. `settings`: TRL's.
    """
    if not is_sharded():
        yield
        return
    os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"  # else rank 0 reads it whole and broadcasts it
    accelerator = Accelerator(
        mixed_precision=settings.mixed_precision, parallelism_config=_parallelism_of_the_process()
    )
    plugin: Any = accelerator.state.fsdp_plugin
    if (
        plugin.mixed_precision_policy is not None
    ):  # accelerate would add gradients up in the arithmetic's numbers
        plugin.mixed_precision_policy = replace(plugin.mixed_precision_policy, reduce_dtype=torch.float32)
    settings.model_init_kwargs["device_map"] = str(accelerator.device)

    def shard(model: Any, *_: Any) -> Any:
        model.tie_weights()
        return fsdp2_prepare_model(accelerator, model)

    models: Any = PreTrainedModel
    models.maybe_distribute_model = staticmethod(shard)
    try:
        yield
    finally:
        del models.maybe_distribute_model


@cache
def _parallelism_of_the_process() -> ParallelismConfig | None:
    """What accelerate's launcher asked for. It keeps its mesh, whose process groups hold memory of the card
    and are never given back: creating a new one in each phase would exhaust the memory."""
    asked = os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG", "false").lower() == "true"
    return ParallelismConfig() if asked else None


def place_on_device(model: Any, *, trained: bool) -> None:
    """What a model loaded in shards needs before its first pass."""
    if not isinstance(model, FSDPModule):
        return
    if not trained:
        model.set_reshard_after_forward(True)  # without a backward pass its head would stay gathered
    weights: Iterator[Any] = cast(Any, model).parameters()
    for number, weight in enumerate(weights, 1):
        if (here := weight._local_tensor).numel() == 0:
            # accelerate knows parameters by their address, and one without a row on this rank has none
            here.data_ptr = lambda number=number: -number


@contextmanager
def gathered(model: Any) -> Iterator[None]:
    """Within the context the weights are gathered: 2 bytes each.

    Gathering a layer per token would cost more than the token, and ranks would have to generate equally
    many. A pass over one token gathers them at the beginning, so that a rank may stop in any later pass.
    """
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    resharding = [part for part in parts if _reshards(part)]
    for part in resharding:
        part.set_reshard_after_forward(False, recurse=False)
    try:
        if parts:
            with torch.no_grad():
                model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device), use_cache=False)
        yield
    finally:
        for part in resharding:
            part.set_reshard_after_forward(True, recurse=False)
        for part in parts:
            part.reshard()


def _reshards(part: FSDPModule) -> bool:
    """After its forward pass; the head and the last norm stay as they are. torch tells no one."""
    return any(group._reshard_after_forward for group in part._get_fsdp_state()._fsdp_param_groups)
