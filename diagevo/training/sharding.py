"""The KL reference under FSDP2, sharded a layer at a time.

TRL shards it as one piece, whose forward pass holds all of it at once on every GPU: 33 GB of an 8B model.
"""

from typing import Any

from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy, get_module_children_bottom_up
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


def shard_layers(model: Any, accelerator: Any) -> None:
    """Shard the layers of `model` that accelerate would shard of the policy; TRL then shards what is left."""
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
