"""An update's bytes at the sizes of the profiles' models, beside the plan's.

The tensors are fake: they have shapes and storages and no numbers. FSDP2 is real, over a group of ranks that
is not; its calls come one after the other, where a GPU sends gradients meanwhile.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl.kernels import chunked_logprob
from trl.trainer.utils import add_fused_lm_head

from diagevo.planning.footprint import update
from diagevo.planning.shapes import shape_of
from tests.training.allocated import Allocated

PROMPT, NEW, LAYERS = 2048, 4096, 3


def config_of(hidden: int, intermediate: int, heads: int, *, tied: bool) -> Qwen3Config:
    """Qwen3 of fewer layers: each takes the same."""
    return Qwen3Config(
        vocab_size=151_936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=LAYERS,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=tied,
        max_position_embeddings=32_768,
    )


SMALL = config_of(1024, 3072, 16, tied=True)  # 0.6B
MIDDLE = config_of(2560, 9728, 32, tied=True)  # 4B
LARGE = config_of(4096, 12_288, 32, tied=False)  # 8B


@pytest.fixture(scope="module")
def four_ranks() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _the_heads_kernels_allocate_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: without Triton they work with copies of a tile of logits."""
    for name in ("_forward_tile", "_backward_tile", "_addmm_fp32"):
        monkeypatch.setattr(chunked_logprob, name, lambda *_, **__: None)


def shard(model: Any, mesh: DeviceMesh) -> None:
    """As accelerate does."""
    how: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, torch.bfloat16),
    }
    for layer in model.model.layers:
        fully_shard(layer, reshard_after_forward=True, **how)
    embedding, tail = model.model.embed_tokens, [model.model.norm, model.lm_head]
    if model.lm_head.weight is embedding.weight:
        tail.insert(1, embedding)
    else:
        fully_shard(embedding, reshard_after_forward=True, **how)
    fully_shard(tail, reshard_after_forward=False, **how)
    fully_shard(model, **how)


def allocated(config: Qwen3Config, rows: int, *, mesh: DeviceMesh | None, lora: int | None) -> int:
    """The most bytes above what a rank holds all the time, in one forward and backward pass."""
    with torch.device("meta"):
        model: Any = Qwen3ForCausalLM(config).train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        add_fused_lm_head(model)
        if lora is not None:
            model = adapted(model, lora)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")
        model.tie_weights()
        if mesh is not None:
            shard(model, mesh)
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        for weight in trained:
            weight.grad = torch.zeros_like(weight)
        known = [t for weight in model.parameters() for t in (weight, weight.grad) if t is not None]
        local = [t.to_local() if hasattr(t, "to_local") else t for t in known]
        ids = torch.zeros(rows, PROMPT + NEW, dtype=torch.long)
        labels = ids.clone()
        labels[:, :-NEW] = -100
        with Allocated(local) as counted:
            with torch.autocast("cpu", torch.bfloat16):
                found = model(
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),
                    labels=labels,
                    fused_lm_head=True,
                    use_cache=False,
                )
            found.log_probs[:, -NEW:].mean().backward()
        return counted.most


def adapted(model: Any, rank: int) -> Any:
    from peft import LoraConfig, get_peft_model

    adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    model.bfloat16().requires_grad_(False)
    found: Any = get_peft_model(model, adapters)
    assert {weight.dtype for weight in found.parameters() if weight.requires_grad} == {torch.float32}
    found.enable_input_require_grads()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "rows", "ranks", "lora"),
    [(SMALL, 2, 1, None), (MIDDLE, 4, 4, None), (LARGE, 4, 4, None), (LARGE, 1, 4, None), (LARGE, 2, 1, 32)],
    ids=["0.6B alone", "4B on four", "8B on four", "8B on four, one row", "adapters of 8B"],
)
def test_an_update_of_a_real_size_allocates_what_the_plan_counts(
    config: Qwen3Config, rows: int, ranks: int, lora: int | None, four_ranks: DeviceMesh
) -> None:
    shape = shape_of(config.to_dict())
    assert shape is not None
    sharded = ranks > 1
    planned = update(shape, rows=rows, prompt=PROMPT, new=NEW, ranks=ranks, sharded=sharded, lora=lora)
    counted = planned.get("gathered", 0) + planned["activations"]
    found = allocated(config, rows, mesh=four_ranks if sharded else None, lora=lora)
    assert 0.97 * found <= counted <= 1.15 * found, (counted / found, counted / 1e9, found / 1e9)
