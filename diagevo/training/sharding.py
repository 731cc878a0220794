"""FSDP2: the KL reference sharded a layer at a time, and a policy that samples with whole weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy, get_module_children_bottom_up
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


def shard_layers(model: Any, accelerator: Any) -> None:
    """Shard the layers of `model` that accelerate would shard of the policy; TRL then shards what is left.

    TRL alone shards it as one piece, whose forward pass holds all of it at once: 33 GB of an 8B model.
    """
    plugin = accelerator.state.fsdp_plugin
    shards = fsdp2_prepare_auto_wrap_policy(plugin, model)
    if plugin.fsdp_version != 2 or shards is None:
        return
    mesh = getattr(accelerator, "torch_device_mesh", None)
    for module in get_module_children_bottom_up(model)[:-1]:
        if shards(module) and not isinstance(module, FSDPModule):
            fully_shard(
                module,
                reshard_after_forward=plugin.reshard_after_forward,
                offload_policy=plugin.cpu_offload,
                mp_policy=plugin.mixed_precision_policy or MixedPrecisionPolicy(),
                mesh=None if mesh is None else mesh[tuple(accelerator.parallelism_config.fsdp_dim_names)],
            )


@contextmanager
def whole(model: Any) -> Iterator[None]:
    """Within the context the weights are gathered: 2 bytes each.

    Gathering a layer a token would cost more than the token, and ranks would have to draw equally many. A
    pass over one token gathers them at the beginning, so that a rank may break off in any pass after it.
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
