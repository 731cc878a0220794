"""The resources of a run without a GPU: peak memory, and time at the speed of a matrix product.

Weights, gradients, AdamW's moments and the reference are float32. Without gradient checkpointing an update
keeps each layer's activations. Prompts and replies count at maximum length: both are upper bounds. No torch.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from diagevo.config.models import Config, GRPOConfig
from diagevo.config.resources import passes, rollouts, rounds_left, votes_a_question
from diagevo.planning.shapes import Shape

PROCESS = 3_000_000_000
"""Memory of Python, torch and TRL, including remains of earlier stages: a run of 135 M weights whose other
parts add up to 7.3 GB used 10.2 GB."""
SHARE = 0.5
"""Share of the speed of large products that a whole model reaches: norms, attention and the optimizer are
slower."""
_NUMBER = 4


@dataclass(frozen=True, slots=True)
class Peak:
    """A stage's peak."""

    stage: str
    parts: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(self.parts.values())


def peaks(config: Config, shape: Shape) -> list[Peak]:
    """The peak of each stage that trains or samples, with one model for both policies."""
    sampling, play = config.sampling, config.round
    longest = sampling.max_prompt_tokens + sampling.max_new_tokens
    weights = _NUMBER * shape.weights
    found: list[Peak] = []
    if config.warm_start.documents is not None:
        rows = min(config.warm_start.micro_batch, config.warm_start.batch_documents)
        found.append(Peak("warm-start", _update(shape, rows * longest)))
    phases = [("challenger", config.challenger_grpo, weights)] if play.train_challenger else []
    for name, settings, beside in [*phases, ("solver", config.solver_grpo, 0)]:
        if not settings.max_steps:
            continue
        parts = _update(shape, min(settings.micro_batch, rollouts(settings)) * longest)
        if settings.beta > 0:
            parts["reference"] = weights
        if beside:
            parts["frozen solver"] = beside
        found.append(Peak(name, parts))
    rows = min(config.hardware.rows_at_once, play.candidates * play.responses)
    cache = _NUMBER * rows * longest * shape.cached
    drawn = _NUMBER * rows * shape.vocabulary * 4  # logits, and their sums in float64
    sampled = {"process": PROCESS, "weights": weights, "cache": cache, "logits": drawn}
    return [*found, Peak("candidates, votes", sampled)]


def _update(shape: Shape, tokens: int) -> dict[str, int]:
    """An update of this many tokens at once. A checkpoint is written from a copy, during the next step."""
    layer = 10 * shape.hidden + 2 * (shape.query + shape.key) + 4 * shape.intermediate
    return {
        "process": PROCESS,
        "weights": _NUMBER * shape.weights,
        "gradients": _NUMBER * shape.weights,
        "Adam": 2 * _NUMBER * shape.weights,
        "copy to save": 3 * _NUMBER * shape.weights,
        "activations": _NUMBER * tokens * shape.layers * layer,
        "logits": 2 * _NUMBER * tokens * shape.vocabulary,
    }


def seconds(
    config: Config, shape: Shape, pace: float, questions: int, played: int = 0
) -> tuple[float, float]:
    """Maximum seconds before round 1 (the warm start and the base model's validation), and of one round with
    its validation, at `pace` operations a second. `questions`: of the validation set. If rounds train
    one role each, a round is the mean of those left once `played` are done. A
    token takes two operations per weight forward, and four more backward.
    """
    each, speed = 2 * shape.weights, SHARE * pace
    prompt, new = config.sampling.max_prompt_tokens, config.sampling.max_new_tokens
    warm = config.warm_start
    documents = 0 if warm.documents is None else warm.steps * warm.batch_documents

    def sampled(prompts: int, answers: int) -> int:
        return each * (prompts * prompt + answers * new)

    def trained(settings: GRPOConfig) -> int:
        through = sum(passes(settings, config.training.lora)) * each
        asked = settings.max_steps * settings.batch_questions
        return sampled(asked, asked * settings.group) + through * rollouts(settings) * (prompt + new)

    play, validation = config.round, config.validation
    pool = sampled(play.candidates, play.candidates)
    pool += sampled(play.candidates, play.candidates * play.responses) + trained(config.solver_grpo)
    spent = rounds_left(config, "solver", played) * pool
    if play.train_challenger:
        written = rollouts(config.challenger_grpo)
        asked = trained(config.challenger_grpo) + sampled(written, written * votes_a_question(config))
        spent += rounds_left(config, "challenger", played) * asked
    spent /= max(1, play.rounds - played)
    heats = 1 + len(validation.temperatures)
    validated = sampled((1 + heats) * questions, questions * (validation.samples * heats + 1))
    before = 3 * each * documents * (prompt + new)
    return (before + validated) / speed, (spent + validated) / speed


def pace() -> float:
    """Operations a second of float32 products on this machine: the best of many, each so short that other
    work rarely interrupts it."""
    import numpy as np

    left, right = np.ones((256, 768), np.float32), np.ones((768, 768), np.float32)
    began, least = time.monotonic(), float("inf")
    while time.monotonic() - began < 0.3:
        before = time.perf_counter()
        np.matmul(left, right)
        least = min(least, time.perf_counter() - before)
    return 2 * left.size * right.shape[1] / least
