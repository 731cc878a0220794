"""Syncs the policy's weights to the engine inside the trainer, and verifies that they arrived.
Log-probabilities cannot tell: the change of one step at a learning rate of 1e-6 is below the rounding of
bfloat16. Checksums can (sampling/engine_weights.py).
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from diagevo.sampling.engine import POLICY, Engine, drop_prefixes, lora_request
from diagevo.sampling.engine_weights import EngineWeights
from diagevo.sampling.model_folder import adapter_scaling
from diagevo.training.adapters import TRAINED, save_adapter


@contextmanager
def lent(engine: Engine) -> Iterator[None]:
    """Within the context TRL uses this process's vLLM instead of starting its own."""
    vllm_generation: Any = import_module("trl.generation.vllm_generation")
    start = getattr(vllm_generation, "LLM", None)  # TRL reports it if there is none

    def given(**_: Any) -> Any:
        engine.wake()  # TRL puts it to sleep if allowed
        engine.holds = None
        return engine.llm

    vllm_generation.LLM = start and given
    try:
        yield
    finally:
        vllm_generation.LLM = start


def serve_adapter(generation: Any, folder: Path) -> None:
    """From here on TRL's `VLLMGeneration` samples from the base with the adapter that `send_adapter` wrote
    to `folder`."""
    engine = generation.llm
    engine.generate = partial(type(engine).generate, engine, lora_request=lora_request(POLICY, folder))


def send_weights(generation: Any) -> int:
    """Send them as TRL's `VLLMGeneration` does; returns the number of tensors whose values differ in the
    engine afterwards. A collective under FSDP. RuntimeError if no tensor names match.
    """
    held = EngineWeights(generation.llm, POLICY)
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
    drop_prefixes(generation.llm)  # TRL asks for it too, and does not look whether it was done
    return held.apart()


def send_adapter(generation: Any, folder: Path) -> int:
    """Send it through `folder`; returns the number of tensors, including the base's, whose values differ in
    the engine. After the first call there is one copy of the base: the trainer's tensors are views of the
    engine's. RuntimeError as above.
    """
    engine, model = generation.llm, generation.model
    save_adapter(model, folder)
    engine.llm_engine.add_lora(lora_request(POLICY, folder, again=True))
    drop_prefixes(engine)
    held, scaling = EngineWeights(engine, POLICY), adapter_scaling(folder)
    held.lend(model)
    for name, tensor in model.named_parameters():
        _, _, part = name.partition(".lora_")
        if not part or part.split(".")[1] == TRAINED:
            held.note(name, tensor, scaling)
    return held.apart()
