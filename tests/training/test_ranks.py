"""The commands that start ranks, read by accelerate's own parser, and the files that are supplied."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import ParallelismConfig
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers.modeling_utils import PreTrainedModel

from diagevo.config.models import HardwareConfig
from diagevo.errors import ConfigError
from diagevo.training import sharding
from diagevo.training.ranks import accelerate_command, accelerate_file

SPEC = Path("/shared/runs/a/rounds/001/solver-logs/launch.json")


def read(name: str, rank: int | None, **more: Any) -> Any:
    """What accelerate makes of our command for 16 ranks: all on one machine, or one in a place of its own."""
    hardware = HardwareConfig(device="cuda", processes=16, accelerate_config=Path(name), **more)
    command = accelerate_command(hardware, SPEC, ("10.0.0.1", 29400), rank=rank)
    assert command[1:3] == ["-m", "accelerate.commands.launch"]
    read: tuple[Any, Any, Any] = _validate_launch_command(launch_command_parser().parse_args(command[3:]))
    arguments, _, _ = read
    assert arguments.module
    assert arguments.training_script == "diagevo.training.worker"
    assert arguments.training_script_args == [str(SPEC)]
    return arguments


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("rank", [0, 15])
def test_fsdp_on_a_cluster_gives_torchrun_a_rank_in_each_place_and_one_place_to_meet(rank: int) -> None:
    arguments = read("fsdp", rank)
    prepare_multi_gpu_env(arguments)
    assert (arguments.nnodes, arguments.nproc_per_node, arguments.node_rank) == ("16", "1", rank)
    assert (arguments.rdzv_backend, arguments.rdzv_endpoint) == ("static", "10.0.0.1:29400")


def test_fsdp_on_one_machine_starts_a_rank_for_each_of_its_gpus() -> None:
    arguments = read("fsdp", None)
    assert (arguments.num_machines, arguments.num_processes) == (1, 16)


def test_groups_that_share_the_training_state_become_a_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not read("fsdp", None).use_parallelism_config
    for name, value in prepare_multi_gpu_env(read("fsdp", 3, fsdp_size=8)).items():
        if name.startswith(("ACCELERATE_", "PARALLELISM_")):
            monkeypatch.setenv(name, value)
    assert os.environ["ACCELERATE_USE_PARALLELISM_CONFIG"] == "true"
    mesh = ParallelismConfig()
    assert (mesh.dp_replicate_size, mesh.dp_shard_size, mesh.total_size) == (2, 8, 16)


def test_the_fsdp_file_shards_with_version_two_and_writes_whole_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in prepare_multi_gpu_env(read("fsdp", None)).items():
        if name.startswith(("ACCELERATE_", "FSDP_")):
            monkeypatch.setenv(name, value)
    assert os.environ["ACCELERATE_USE_FSDP"] == "true"
    assert os.environ["ACCELERATE_MIXED_PRECISION"] == "bf16"
    plugin: Any = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert plugin.state_dict_type.name == "FULL_STATE_DICT"
    assert not plugin.activation_checkpointing


def test_a_file_that_asks_for_deepspeed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    with pytest.raises(ConfigError, match="DeepSpeed, which is not supported"):
        sharding.refuse_wrong_sharding()


def test_gradients_of_shards_are_added_up_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate would take bfloat16, in which the arithmetic is."""
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    plugin = SimpleNamespace(mixed_precision_policy=half)
    accelerator = SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin), device="cpu")
    used: list[MixedPrecisionPolicy] = []
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setattr(sharding, "Accelerator", lambda **_: accelerator)
    prepare: Any = lambda given, model: used.append(given.state.fsdp_plugin.mixed_precision_policy)  # noqa: E731
    monkeypatch.setattr(sharding, "fsdp2_prepare_model", prepare)
    with sharding.loaded_in_shards(SimpleNamespace(mixed_precision="bf16", model_init_kwargs={})):
        models: Any = PreTrainedModel
        models.maybe_distribute_model(SimpleNamespace(tie_weights=lambda: None))
    assert [(one.param_dtype, one.reduce_dtype) for one in used] == [(torch.bfloat16, torch.float32)]


def test_a_file_that_is_neither_ours_nor_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no file: zero"):
        accelerate_file(Path("zero"))
