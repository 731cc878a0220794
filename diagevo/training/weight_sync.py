"""The engine inside the trainer gets the policy's weights, and is proven to have them.

Log-probabilities cannot tell: what a step at a learning rate of 1e-6 changes is below the rounding of
bfloat16. Checksums can: the bits of a tensor added up as integers, exact in any order, so that a tensor in
which the engine keeps several has the sum of theirs, and rows of zeros that fill it up add nothing.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def send_weights(generation: Any) -> int:
    """Send them as TRL's `VLLMGeneration` does; of how many tensors the engine has other values after it.

    A collective under FSDP. RuntimeError where no tensor of the engine has the name of one of the trainer.
    """
    model = generation.llm.llm_engine.model_executor.driver_worker.model_runner.model
    tensors: dict[str, torch.Tensor] = dict(model.named_parameters())
    fused: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    place = {f".{part}.": f".{whole}." for whole, parts in fused.items() for part in parts}
    held: Counter[str] = Counter()
    walk = generation._iter_named_params

    def noted() -> Iterator[tuple[str, torch.Tensor]]:
        for sent, tensor in walk():
            name = sent
            for part, whole in place.items():
                name = name.replace(part, whole)
            if name in tensors:
                held[name] += checksum(tensor.to(tensors[name].dtype))
            yield sent, tensor

    generation._iter_named_params = noted  # adapters merged a second time would round otherwise
    try:
        generation.sync_weights()
        if not held:  # nothing was sent: compared with what should have been
            deque(noted(), maxlen=0)
    finally:
        del generation._iter_named_params
    if not held:
        raise RuntimeError(
            f"{type(model).__name__} of vLLM names its tensors otherwise than the trainer: whether it has "
            "the trainer's weights cannot be known. Sample without it: hardware.colocate_vllm false."
        )
    return sum(checksum(tensors[name]) != value for name, value in held.items())


def checksum(tensor: torch.Tensor) -> int:
    return int(tensor.detach().contiguous().view(_BITS[tensor.element_size()]).sum(dtype=torch.int64))
