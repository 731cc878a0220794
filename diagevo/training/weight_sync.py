"""The engine inside the trainer gets what the policy has learned, and is proven to have it.

Log-probabilities cannot tell: what a step at a learning rate of 1e-6 changes is below the rounding of
bfloat16. Checksums can: the bits of a tensor added up as integers, exact in any order, so that a tensor in
which the engine keeps several has the sum of theirs, and rows of zeros that fill it up add nothing.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from diagevo.config.serving import lora_slots
from diagevo.sampling.trainers_vllm import POLICY, lora_request
from diagevo.training.adapters import TRAINED, save_adapter

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@contextmanager
def engine_options(numbers: str, lora: int | None) -> Iterator[None]:
    """Within the context TRL starts its vLLM with what it has no settings for: the numbers of the trainer's
    arithmetic, and slots for two adapters, the policy's and that of a frozen one which votes."""
    vllm_generation: Any = import_module("trl.generation.vllm_generation")
    start = getattr(vllm_generation, "LLM", None)  # TRL says so where there is none
    options: dict[str, Any] = {"dtype": numbers}
    if lora is not None:
        options |= {"enable_lora": True, "max_loras": 2, "max_lora_rank": lora_slots(lora)}
    vllm_generation.LLM = start and partial(start, **options)
    try:
        yield
    finally:
        vllm_generation.LLM = start


def serve_adapter(generation: Any, folder: Path) -> None:
    """From here on TRL's `VLLMGeneration` draws from the base with the adapter that `send_adapter` wrote to
    `folder`."""
    engine = generation.llm
    engine.generate = partial(engine.generate, lora_request=lora_request(POLICY, folder))


def send_weights(generation: Any) -> int:
    """Send them as TRL's `VLLMGeneration` does; of how many tensors the engine has other values after it.

    A collective under FSDP. RuntimeError where no tensor of the engine has the name of one of the trainer.
    """
    held = _Held(generation)
    walk = generation._iter_named_params

    def noted() -> Iterator[tuple[str, torch.Tensor]]:
        for sent, tensor in walk():
            held.note(sent, tensor)
            yield sent, tensor

    generation._iter_named_params = noted
    try:
        generation.sync_weights()
        if not held.noted:  # nothing was sent: compared with what should have been
            deque(noted(), maxlen=0)
    finally:
        del generation._iter_named_params
    return held.apart()


def send_adapter(generation: Any, folder: Path) -> int:
    """Send it by way of `folder`; of how many tensors, those of the base too, the engine has other values.

    From the first time on the base is held once: the trainer's tensors are parts of the engine's.
    RuntimeError as above.
    """
    engine, model = generation.llm, generation.model
    save_adapter(model, folder)
    engine.llm_engine.add_lora(lora_request(POLICY, folder, again=True))
    engine.reset_prefix_cache()
    held = _Held(generation)
    held.lend(model)
    for name, tensor in model.named_parameters():
        module, _, part = name.removeprefix("base_model.model.").partition(".lora_")
        if not part:
            held.note(module, tensor)
        elif part.split(".")[1] == TRAINED:
            scaling = (
                model.get_submodule(name.partition(".lora_")[0]).scaling[TRAINED] if part[0] == "B" else 1
            )
            held.note(f"{module}.lora_{part[0]}", tensor, scaling)
    return held.apart()


class _Held:
    """What the engine should hold, by its own names."""

    def __init__(self, generation: Any) -> None:
        runner = generation.llm.llm_engine.model_executor.driver_worker.model_runner
        self._model = runner.model
        fused: Mapping[str, list[str]] = getattr(self._model, "packed_modules_mapping", {})
        self._place = {f".{part}.": f".{whole}." for whole, parts in fused.items() for part in parts}
        self.tensors: dict[str, list[torch.Tensor]] = {
            name.replace(".base_layer", ""): [tensor] for name, tensor in self._model.named_parameters()
        }
        if (manager := getattr(runner, "lora_manager", None)) is not None:
            self.tensors |= _adapter(manager._adapter_manager)
        self.noted: Counter[str] = Counter()

    def name(self, name: str) -> str:
        """Of the tensor that holds what the trainer has under a name."""
        name = name.replace(".base_layer", "")
        for part, whole in self._place.items():
            name = name.replace(part, whole)
        return name

    def lend(self, model: Any) -> None:
        """Its own tensors to a trainer's model in which they are frozen, where both are the same by now:
        accelerate may have put the model elsewhere before."""
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
        """What the trainer has under a name; vLLM keeps the second half of an adapter scaled."""
        name = self.name(name)
        if (held := self.tensors.get(name)) is not None:
            tensor = tensor.detach().to(held[0].dtype)
            self.noted[name] += checksum(tensor if scaling == 1 else tensor * scaling)

    def apart(self) -> int:
        if not self.noted:
            raise RuntimeError(
                f"{type(self._model).__name__} of vLLM names its tensors otherwise than the trainer: whether "
                "it has the trainer's weights cannot be known. Sample without it: hardware.colocate_vllm "
                "false."
            )
        return sum(
            sum(map(checksum, self.tensors[name])) != expected for name, expected in self.noted.items()
        )


def _adapter(manager: Any) -> dict[str, list[torch.Tensor]]:
    """The policy's, of which a fused layer has several; where it has none, nothing."""
    found: dict[str, list[torch.Tensor]] = {}
    slots = [slot for slot, number in enumerate(manager.lora_index_to_id) if number == POLICY]
    for name, module in manager.modules.items():
        for part in "AB":
            stacks = getattr(module, f"lora_{part.lower()}_stacked")
            if isinstance(stacks, tuple):  # of a linear layer
                none = [stacks[0].new_zeros(0)]
                found[f"{name}.lora_{part}"] = [stack[slot] for stack in stacks for slot in slots] or none
    return found


def checksum(tensor: torch.Tensor) -> int:
    return int(tensor.detach().contiguous().view(_BITS[tensor.element_size()]).sum(dtype=torch.int64))
