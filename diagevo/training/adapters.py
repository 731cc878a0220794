"""A policy that is an adapter: the base is frozen and never changes, and the adapter continues from round to
round.

A phase starts from the last one's adapter; TRL keeps a frozen copy of it, the KL reference. The result is an
adapter again, in PEFT's format.
"""

import os
from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError, extra
from diagevo.sampling.model_folder import adapter_rank, base_of

TRAINED = "default"
"""PEFT's name of the adapter that trains; TRL names the copy `ref`."""


def check_adapter(start: Path, rank: int | None) -> None:
    """Raises ConfigError if `training.lora` differs from the rank of the policy in `start`."""
    if base_of(start) is not None and (had := adapter_rank(start)) != rank:
        raise ConfigError(
            f"training.lora is {rank}, and the policy in {start} is an adapter of rank {had}.",
            hint=f"Set training.lora to {had}, or start from whole weights.",
        )


def adapted(start: Path, rank: int, output: Path, numbers: str, **options: Any) -> Any:
    """The model of the policy in `start`: its base in `numbers`, to which the arithmetic rounds it anyway,
    and its adapter in float32; a new one if it has none. When saved to `output`, it names its base.

    A new adapter covers every linear layer but the head, and initially answers as the base does.
    """
    with extra("train", "training.lora"):
        from peft import LoraConfig, PeftModel, get_peft_model
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    base = base_of(start)
    model: Any = AutoModelForCausalLM.from_pretrained(str(base or start), dtype=numbers, **options)
    if base is None:
        new = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
        found: Any = get_peft_model(model, new)
    else:
        found = PeftModel.from_pretrained(model, str(start), is_trainable=True)
    found.peft_config[TRAINED].base_model_name_or_path = _named(base or start, output)
    return found


def _named(base: Path, output: Path) -> str:
    """A base within the run's folder moves with it; any other one stays where it is."""
    base, output = base.resolve(), output.resolve()
    run = output.parents[min(2, len(output.parents) - 1)]
    return os.path.relpath(base, output) if base.is_relative_to(run) else str(base)


def save_adapter(model: Any, folder: Path) -> None:
    """Save only the adapter that trains: next to a copy, transformers would load the copy and leave this one
    unchanged."""
    model.save_pretrained(str(folder), selected_adapters=[TRAINED], save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
