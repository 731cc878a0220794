"""Seconds of a sharded save over gloo, beside gathering all to one rank: 163 M weights and AdamW's moments.

`OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m benchmarks.sharded_save FOLDER`, which is left with what was
saved.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from transformers import Qwen3Config, Qwen3ForCausalLM

from diagevo.training.saving import named, written


def main() -> None:
    distributed.init_process_group("gloo")
    mesh = distributed.device_mesh.init_device_mesh("cpu", (distributed.get_world_size(),))
    model: Any = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=49_152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            head_dim=64,
            tie_word_embeddings=False,
        )
    )
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    tensors: dict[str, Any] = named(*get_state_dict(model, optimizer))
    times = [time.perf_counter()]
    saved = written(tensors, Path(sys.argv[1]) / "sharded", distributed.new_group(backend="gloo"))
    times.append(time.perf_counter())
    saved.result()
    times.append(time.perf_counter())
    whole: dict[str, Any] = {}
    for name, tensor in tensors.items():
        found = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        if distributed.get_rank() == 0:
            whole[name] = found
    if distributed.get_rank() == 0:
        torch.save(whole, Path(sys.argv[1]) / "gathered.pt")
    distributed.barrier()
    times.append(time.perf_counter())
    names = ("copied_s", "written_beside_s", "gathered_and_written_s")
    figures: dict[str, Any] = {n: round(b - a, 2) for n, a, b in zip(names, times, times[1:], strict=False)}
    figures["files"] = {f.name: f.stat().st_size for f in sorted(Path(sys.argv[1]).rglob("*.*"))}
    if distributed.get_rank() == 0:
        print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
