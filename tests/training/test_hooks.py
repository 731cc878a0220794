"""The hooks of TRL and transformers that a phase overrides or calls, as they are in TRL 1.16.

Nothing promises that a private one stays. Where a test here fails, compare the hook with ours in trainer.py
before the new release is allowed in pyproject.toml.
"""

import inspect

import pytest
from trl.trainer.grpo_trainer import GRPOTrainer

from diagevo.training import saving, trainer
from diagevo.training.saving import WholeCheckpoints
from diagevo.training.trainer import PhaseTrainer

PRIVATE = {
    "_get_per_token_logps_and_entropies": [
        "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy",
        "compute_aux_loss", "pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask",
        "spatial_shapes", "num_tiles", "image_sizes", "token_type_ids", "mm_token_type_ids",
        "image_position_ids",
    ],
    "_generate_single_turn": [
        "prompt_ids", "images", "multimodal_fields", "num_generations", "has_tool_images",
    ],
    "_save_checkpoint": ["model", "trial"],
    "_get_output_dir": ["trial"],
    "_save_optimizer_and_scheduler": ["output_dir"],
    "_load_optimizer_and_scheduler": ["checkpoint"],
    "_load_from_checkpoint": ["resume_from_checkpoint", "model"],
}  # fmt: skip
PUBLIC = {
    "get_train_dataloader": [],
    "training_step": ["model", "inputs", "num_items_in_batch"],
    "compute_loss": ["model", "inputs", "return_outputs", "num_items_in_batch"],
    "save_model": ["output_dir", "_internal_call"],
}
CALLED = {"_generate_and_score_completions": ["inputs"]}


@pytest.mark.parametrize(("name", "parameters"), (PRIVATE | PUBLIC | CALLED).items())
def test_a_hook_takes_what_it_took_in_trl_1_16(name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(GRPOTrainer, name)).parameters) == ["self", *parameters]


def test_every_hook_that_is_overridden_is_named() -> None:
    plain = {
        "__module__",
        "__doc__",
        "__init__",
        "__annotations__",
        "__parameters__",
        "__firstlineno__",
        "__static_attributes__",
    }
    own = vars(PhaseTrainer) | vars(WholeCheckpoints)
    overridden = {name for name in own if hasattr(GRPOTrainer, name)} - plain
    assert overridden == PRIVATE.keys() | PUBLIC.keys()
    told = f"{trainer.__doc__}{saving.__doc__}"
    assert all(f"`{name}" in told for name in (*PRIVATE, *PUBLIC, *CALLED))
