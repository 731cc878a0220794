"""Checks whether a vLLM has the right weights.

Checksums add up a tensor's bits as integers, exact in any order, so that a fused tensor has the sum of its
parts' checksums, and zero padding adds nothing.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

_BLOCK = {False: 2**14, True: 2**24}
"""Elements added up at once: what fits a CPU's cache, and what keeps a GPU busy."""
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class EngineWeights:
    """The expected weights of the engine, by its own names."""

    def __init__(self, llm: Any, adapter: int) -> None:
        """For vLLM's `LLM`, with the adapter of this id if it has one."""
        runner = llm.llm_engine.model_executor.driver_worker.model_runner
        self._model = runner.model
        fused: Mapping[str, list[str]] = getattr(self._model, "packed_modules_mapping", {})
        self._place = {f".{part}.": f".{whole}." for whole, parts in fused.items() for part in parts}
        self.tensors: dict[str, list[torch.Tensor]] = {
            name.replace(".base_layer", ""): [tensor] for name, tensor in self._model.named_parameters()
        }
        if (manager := getattr(runner, "lora_manager", None)) is not None:
            self.tensors |= _adapter(manager._adapter_manager, adapter)
        self.noted: Counter[str] = Counter()

    def name(self, name: str) -> str:
        """The engine's tensor for a name of the policy."""
        name = name.replace(".base_layer", "")
        for part, whole in self._place.items():
            name = name.replace(part, whole)
        return name

    def lend(self, model: Any) -> None:
        """Lend its tensors to a trainer's model in which they are frozen, once both are equal:
        accelerate may have moved the model before."""
        given: Counter[str] = Counter()
        for name, tensor in model.named_parameters():
            whole = self.name(name.removeprefix("base_model.model."))
            if tensor.requires_grad or whole not in self.tensors:
                continue
            [fused] = self.tensors[whole]
            part = fused.detach()[given[whole] : given[whole] + len(tensor)]
            given[whole] += len(tensor)
            alike = (part.dtype, part.device.type) == (tensor.dtype, tensor.device.type)
            if part.data_ptr() != tensor.data_ptr() and alike and torch.equal(part, tensor):
                tensor.data = part

    def note(self, name: str, tensor: torch.Tensor, scaling: float = 1) -> None:
        """Note the policy's tensor under a name, which may be PEFT's; vLLM stores the second half of an
        adapter scaled."""
        module, of_adapter, part = name.removeprefix("base_model.model.").partition(".lora_")
        name, scaling = self.name(f"{module}{of_adapter}{part[:1]}"), scaling if part[:1] == "B" else 1
        if (held := self.tensors.get(name)) is not None:
            tensor = tensor.detach().to(held[0].dtype)
            self.noted[name] += checksum(tensor if scaling == 1 else tensor * scaling)

    def apart(self) -> int:
        if not self.noted:
            raise RuntimeError(
                f"{type(self._model).__name__} of vLLM names its tensors otherwise than the policy: whether "
                "it has its weights cannot be known. Sample without it: hardware.colocate_vllm false."
            )
        return sum(
            sum(map(checksum, self.tensors[name])) != expected for name, expected in self.noted.items()
        )


def _adapter(manager: Any, wanted: int) -> dict[str, list[torch.Tensor]]:
    """One of them, of which a fused layer has several; where it is not there, nothing."""
    found: dict[str, list[torch.Tensor]] = {}
    slots = [slot for slot, number in enumerate(manager.lora_index_to_id) if number == wanted]
    for name, module in manager.modules.items():
        for part in "AB":
            stacks = getattr(module, f"lora_{part.lower()}_stacked")
            if isinstance(stacks, tuple):  # of a linear layer
                none = [stacks[0].new_zeros(0)]
                found[f"{name}.lora_{part}"] = [stack[slot] for stack in stacks for slot in slots] or none
    return found


def checksum(tensor: torch.Tensor) -> int:
    """Block by block: torch would make an int64 copy of the whole, of 5 GB for the embedding of Qwen3-8B."""
    bits = tensor.detach().contiguous().view(-1).view(_BITS[tensor.element_size()])
    sums = [block.sum(dtype=torch.int64) for block in bits.split(_BLOCK[bits.is_cuda])]
    return int(torch.stack(sums).sum()) if sums else 0
