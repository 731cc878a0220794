"""The engine inside the trainer gets what the policy has learned, and is proven to have it.

Log-probabilities cannot tell: what a step at a learning rate of 1e-6 changes is below the rounding of
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
    """Within the context TRL starts no vLLM of its own, but takes the one of this process."""
    vllm_generation: Any = import_module("trl.generation.vllm_generation")
    start = getattr(vllm_generation, "LLM", None)  # TRL says so where there is none

    def given(**_: Any) -> Any:
        engine.wake()  # TRL has it sleep where it may
        engine.holds = None
        return engine.llm

    vllm_generation.LLM = start and given
    try:
        yield
    finally:
        vllm_generation.LLM = start


def serve_adapter(generation: Any, folder: Path) -> None:
    """From here on TRL's `VLLMGeneration` draws from the base with the adapter that `send_adapter` wrote to
    `folder`."""
    engine = generation.llm
    engine.generate = partial(type(engine).generate, engine, lora_request=lora_request(POLICY, folder))


def send_weights(generation: Any) -> int:
    """Send them as TRL's `VLLMGeneration` does; of how many tensors the engine has other values after it.

    A collective under FSDP. RuntimeError where no tensor of the engine has the name of one of the trainer.
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
    """Send it by way of `folder`; of how many tensors, those of the base too, the engine has other values.

    From the first time on the base is held once: the trainer's tensors are parts of the engine's.
    RuntimeError as above.
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
