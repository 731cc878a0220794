"""The disk space of a run's weights."""

from diagevo.config.models import Config
from diagevo.planning.shapes import find_shape
from diagevo.training.checkpoints import KEEP


def disk_bytes(config: Config) -> int | None:
    """Maximum bytes of a whole run's weights; None if a model's size is unknown.

    A policy consists of what trains, with LoRA only the adapter. Weights are float32 whatever they started
    as, because most updates of a phase are too small for bfloat16. A resumable checkpoint has the trained
    weights and AdamW's two moments; one is written before the oldest is removed. Sharded ranks store a tied
    head under both of its names.
    """
    shape, lora = find_shape(config.roles.solver.model), config.training.lora
    if shape is None:
        return None
    rounds, keep = config.round.rounds, config.round.keep_checkpoints
    policies = 2 if config.round.train_challenger else 1
    kept = rounds * policies if keep is None else min(rounds, keep) * policies + 1
    trained = shape.weights if lora is None else shape.adapters(lora)
    sharded = config.hardware.accelerate_config is not None
    warmed = shape.weights if config.warm_start.documents is not None else 0
    again = shape.vocabulary * shape.hidden if sharded and shape.tied else 0
    return 4 * (warmed + (trained + again) * kept + 3 * trained * (KEEP + 1))


def gigabytes(size: int | None) -> str:
    """A size in readable form."""
    if size is None:
        return "unknown (the model is not here)"
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
