"""What the paper states, and what was decided where it is silent: the measure of `config show --paper`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from diagevo.config.loading import Resolved, value_at
from diagevo.config.sources import Source

GRPO = "paper, GRPO optimization settings"
LOOP = "paper, DiagEvo-specific training configuration"
THRESHOLDS = "paper, reward, filtering and memory hyperparameters"
VALIDATION = "paper, validation and checkpoint selection"
MODELS = "paper, implementation details"
SILENT = "decided; the paper is silent"
PROMPTS = "the wording of its appendix"
WORDED = "own wording; the paper's appendix gives the prompts"
"""Where the paper speaks and DiagEvo says the same in words of its own."""

_SHARED_GRPO: dict[str, tuple[Any, str]] = {
    "batch_questions": (256, LOOP),
    "group": (8, LOOP),
    "learning_rate": (1e-6, GRPO),
    "weight_decay": (1e-2, GRPO),
    "beta": (1e-2, GRPO),
    "clip_low": (0.2, SILENT),
    "clip_high": (0.3, SILENT),
    "loss_type": ("dapo", SILENT),
    "delta": (3.0, SILENT),
    "max_grad_norm": (1.0, SILENT),
}

STATED: Mapping[str, tuple[Any, str]] = {
    "prompts": (None, WORDED),
    "world": (None, "paper: questions of open mathematics"),
    "round.rounds": (5, LOOP),
    "round.candidates": (8000, SILENT),
    "round.responses": (12, LOOP),
    "round.challenger_votes": (10, SILENT),
    "round.boxed_answers": (False, "paper, design rationale of the prompts"),
    "round.train_challenger": (True, "paper, challenger update and quality reward"),
    "schedule.policy": ("frequency", "paper, Equation 1"),
    "schedule.k": ("1/2", THRESHOLDS),
    "schedule.stitching": ("node", "paper, cross-state stitching"),
    "filter.variant": ("double", "paper, double-confidence filtering"),
    "filter.p_low": ("1/4", THRESHOLDS),
    "filter.p_high": ("3/4", THRESHOLDS),
    "filter.tau": ("8/5", THRESHOLDS),
    "reward.repetition_weight": (1.0, THRESHOLDS),
    "reward.cluster_distance": (0.5, SILENT),
    "memory.theta_up": ("7/10", THRESHOLDS),
    "memory.promotion_questions": (1, "paper, Equation 6: more than none"),
    "memory.state_updates": (True, "paper, Equations 6 to 8"),
    "memory.theta_dup": (0.5, THRESHOLDS),
    "memory.theta_merge": (0.5, THRESHOLDS),
    "memory.shortlist": (5, THRESHOLDS),
    "memory.duplicate_candidates": (20, SILENT),
    "memory.node_embedding": ("label", SILENT),
    "diagnosis.enabled": (True, "paper, error-cause memory"),
    "diagnosis.failures_per_question": (None, SILENT),
    "diagnosis.skip_truncated": (False, SILENT),
    "diagnosis.retries": (2, SILENT),
    "diagnosis.trajectory_characters": (12000, SILENT),
    "challenger_grpo.max_steps": (6, LOOP),
    "solver_grpo.max_steps": (12, LOOP),
    **{f"challenger_grpo.{name}": stated for name, stated in _SHARED_GRPO.items()},
    **{f"solver_grpo.{name}": stated for name, stated in _SHARED_GRPO.items()},
    "training.lora": (None, "paper, GRPO optimization settings: every weight trains"),
    "sampling.temperature": (1.0, GRPO),
    "sampling.top_p": (0.99, GRPO),
    "sampling.max_new_tokens": (4096, SILENT),
    "sampling.max_prompt_tokens": (2048, SILENT),
    "roles.diagnostician.engine": ("openai", MODELS),
    "roles.diagnostician.model": ("Qwen/Qwen3-4B-Instruct-2507", MODELS),
    "roles.embedder.engine": ("openai", MODELS),
    "roles.embedder.model": ("text-embedding-v4", MODELS),
    "validation.questions": ("benchmark:validation", VALIDATION),
    "validation.limit": (None, VALIDATION),
    "validation.metric": ("greedy", VALIDATION),
}
"""Setting -> (value as the configuration writes it, where it is stated)."""

SOLVERS = ("Qwen/Qwen3-4B-Base", "Qwen/Qwen3-8B-Base", "OctoThinker/OctoThinker-8B-Hybrid-Base")
"""The base models of the paper's main table."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A value that is not the paper's, or not what was decided where the paper is silent."""

    key: str
    value: Any
    paper: Any
    kind: Literal["paper", "decided", "wording"]
    stated: str
    source: Source


def deviations(resolved: Resolved) -> list[Deviation]:
    """Every setting that differs from the paper's value, in the order of the configuration."""
    tree = resolved.config.model_dump(mode="json")
    found = []
    for setting in resolved.settings():
        if setting.key == "prompts":
            own = resolved.config.prompts or "DiagEvo's own wording"
            found.append(Deviation("prompts", own, PROMPTS, "wording", WORDED, setting.source))
            continue
        value = value_at(tree, tuple(setting.key.split(".")))
        if setting.key in ("roles.challenger.model", "roles.solver.model"):
            expected: Any = "one of the paper's three base models"
            stated, same = MODELS, value in SOLVERS
        elif setting.key in STATED:
            expected, stated = STATED[setting.key]
            same = value == expected
        else:
            continue
        if not same:
            kind = "decided" if stated == SILENT else "paper"
            found.append(Deviation(setting.key, value, expected, kind, stated, setting.source))
    return found
