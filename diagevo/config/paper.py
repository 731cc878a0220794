"""What the paper states, and what was decided where it is silent: the reference of `config show --paper`.
Every setting is in exactly one of `STATED` and `NOT_METHOD`: no deviation can be left out by oversight.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from diagevo.config.loading import Resolved, values_of_method
from diagevo.config.sources import Source

GRPO = "paper, GRPO optimization settings"
LOOP = "paper, DiagEvo-specific training configuration"
THRESHOLDS = "paper, reward, filtering and memory hyperparameters"
VALIDATION = "paper, validation and checkpoint selection"
MODELS = "paper, implementation details"
SETUP = "paper, experimental setup"
PRECISION = "paper, GRPO optimization"
"""BF16 mixed precision on GPUs, with FlashAttention 2."""
SILENT = "decided; the paper is silent"
PROMPTS = "the wording of its appendix"
WORDED = "own wording; the paper's appendix gives the prompts"
"""Where the paper speaks and DiagEvo says the same in words of its own."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """Any of these values is the paper's."""

    values: tuple[str, ...]
    description: str


SOLVERS = OneOf(
    ("Qwen/Qwen3-4B-Base", "Qwen/Qwen3-8B-Base", "OctoThinker/OctoThinker-8B-Hybrid-Base"),
    "one of the paper's three base models",
)
DIAGNOSTICIANS = OneOf(
    (
        "Qwen/Qwen3-4B-Instruct-2507",
        "Qwen/Qwen3-30B-A3B-Instruct-2507",
        "Qwen/Qwen3-235B-A22B-Instruct-2507",
    ),
    "one of the paper's three diagnosticians",
)

_SHARED_GRPO: dict[str, tuple[Any, str]] = {
    "batch_questions": (256, LOOP),
    "group": (8, LOOP),
    "advantage": ("group", "paper, GRPO"),
    "learning_rate": (1e-6, GRPO),
    "weight_decay": (1e-2, GRPO),
    "beta": (1e-2, GRPO),
    "clip_low": (0.2, SILENT),
    "clip_high": (0.3, SILENT),
    "loss_type": ("dapo", SILENT),
    "importance_sampling_level": ("token", SILENT),
    "advantage_scale": ("std", "paper, GRPO optimization"),
    "sampler_correction": (None, SILENT),
    "updates": (1, SILENT),
    "delta": (3.0, SILENT),
    "max_grad_norm": (1.0, SILENT),
}

STATED: Mapping[str, tuple[Any, str]] = {
    "method": ("diagevo", SETUP),
    "prompts": (None, WORDED),
    "world": (None, "paper: questions of open mathematics"),
    "round.rounds": (5, LOOP),
    "round.candidates": (8000, SILENT),
    "round.responses": (12, LOOP),
    "round.challenger_votes": (10, SILENT),
    "round.boxed_answers": (False, "paper, design rationale of the prompts"),
    "round.true_labels": (False, "paper, dataset construction: the majority is the label"),
    "round.train_challenger": (True, "paper, challenger update and quality reward"),
    "schedule.policy": ("frequency", "paper, Equation 1"),
    "schedule.fixed_epsilon": (None, "paper, Equation 1"),
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
    "warm_start.documents": (None, "paper, setup: the base models start as they are"),
    "sampling.temperature": (1.0, GRPO),
    "sampling.top_p": (0.99, GRPO),
    "sampling.max_new_tokens": (4096, SILENT),
    "sampling.max_prompt_tokens": (2048, SILENT),
    "sampling.chat_template_kwargs": ({}, SILENT),
    "hardware.device": ("cuda", PRECISION),
    "hardware.precision": (OneOf(("auto", "bfloat16"), "bfloat16"), PRECISION),
    "hardware.attention": ("flash_attention_2", PRECISION),
    "roles.challenger.model": (SOLVERS, SETUP),
    "roles.solver.model": (SOLVERS, SETUP),
    "roles.diagnostician.engine": ("openai", MODELS),
    "roles.diagnostician.model": (DIAGNOSTICIANS, SETUP),
    "roles.diagnostician.max_tokens": (1024, SILENT),
    "roles.diagnostician.structured_output": ("auto", SILENT),
    "roles.embedder.engine": ("openai", MODELS),
    "roles.embedder.model": ("text-embedding-v4", MODELS),
    "roles.embedder.dimension": (1024, SILENT),
    "validation.questions": ("benchmark:validation", VALIDATION),
    "validation.limit": (None, VALIDATION),
    "validation.metric": ("greedy", SILENT),
    "validation.samples": (8, SILENT),
}
"""Setting -> (value as written in a configuration, where it is stated)."""

_PLACE = "where and how fast, not what"
_GUARD = "stops a run, and changes none"
_REACH = "how a service is reached"
_PIN = "which commit of the model that is named beside it"
_WARM = "of a warm start, which the paper has not"
_ANCHORS = "of labelled items, which the paper has not"
_CORPUS = "of documents, which the paper has not"
_INGEST = "how another trainer's rollouts are read; the paper has none"

_TASKS = "of Absolute Zero, another method"
_LEVELS = "of DARC, another method"

NOT_METHOD: Mapping[str, str] = {
    "profile": "a name; its values are compared one by one",
    "seed": "one of many equal draws",
    "round.keep_checkpoints": "disk space",
    "reward.bleu": "the same distances",
    "memory.index": "the same nearest causes",
    "diagnosis.workers": _PLACE,
    "diagnosis.max_calls": _GUARD,
    "diagnosis.max_tokens": _GUARD,
    **{f"ingest.{name}": _INGEST for name in ("steps_per_round", "pass_at", "reward", "all_failed", "map")},
    **{f"{role}_grpo.micro_batch": _PLACE for role in ("challenger", "solver")},
    **{f"{role}_grpo.save_steps": "how much a crash costs" for role in ("challenger", "solver")},
    **{
        f"warm_start.{name}": _WARM
        for name in ("steps", "batch_documents", "learning_rate", "micro_batch", "save_steps")
    },
    **{f"anchors.{name}": _ANCHORS for name in ("file", "shown", "practised", "weight")},
    **{f"corpus.{name}": _CORPUS for name in ("file", "documents", "characters", "mathematics")},
    **{f"absolute_zero.{name}": _TASKS for name in ("shown", "inputs", "buffer")},
    **{f"darc.{name}": _LEVELS for name in ("questioner_rounds", "near")},
    "training.first_kl": _GUARD,
    "training.sampling_gap": _GUARD,
    "hardware.cluster": _PLACE,
    "hardware.restarts": _GUARD,
    "hardware.processes": _PLACE,
    "hardware.threads": _PLACE,
    "hardware.rank_timeout": _GUARD,
    "hardware.accelerate_config": _PLACE,
    "hardware.fsdp_size": _PLACE,
    "hardware.colocate_vllm": _PLACE,
    "hardware.vllm_memory": _PLACE,
    "hardware.report_to": "where curves are drawn",
    "hardware.rows_at_once": _PLACE,
    "roles.challenger.revision": _PIN,
    "roles.solver.revision": _PIN,
    **{f"roles.diagnostician.{name}": _REACH for name in ("base_url", "api_key_env", "timeout")},
    **{f"roles.embedder.{name}": _REACH for name in ("base_url", "api_key_env", "timeout")},
    **{
        f"roles.judge.{name}": "of methods with documents, which the paper has not"
        for name in ("engine", "model", "base_url", "api_key_env", "timeout")
    },
    "validation.data": "where the same files lie",
    "validation.temperatures": "a measurement beside the run",
}
"""Settings that are not part of the method -> why not. They are never a deviation."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A value that differs from the paper's, or from the decision where the paper is silent."""

    key: str
    value: Any
    paper: Any
    kind: Literal["paper", "decided", "wording"]
    stated: str
    source: Source


def deviations(resolved: Resolved) -> list[Deviation]:
    """Every setting that differs from the paper's value, in the order of the configuration. A method of
    `SOURCES` is compared with its own source."""
    found, of_source = [], _of_source(resolved.config.method)
    for setting in resolved.settings():
        if setting.key == "prompts":
            worded = setting.value or "DiagEvo's own wording"
            found.append(Deviation("prompts", worded, PROMPTS, "wording", WORDED, setting.source))
            continue
        if setting.key in NOT_METHOD and setting.key not in of_source:
            continue
        expected, stated = of_source.get(setting.key) or STATED[setting.key]
        if not _agrees(setting.value, expected):
            paper = expected.description if isinstance(expected, OneOf) else expected
            kind = "decided" if stated == SILENT else "paper"
            found.append(Deviation(setting.key, setting.value, paper, kind, stated, setting.source))
    return found


SOURCES: Mapping[str, tuple[str, ...]] = {
    "r-few": (
        "r-few is played after its description: no release of it could be read, and what the description"
        " leaves open has R-Zero's value",
        "the band is applied to the majority's share, of labelled items too",
        "without a warm start of its own the challenger is not warmed up for prompts with examples",
    ),
    "absolute-zero": (
        "one update of both roles is played as two phases: the challenger's, then the solver's from there",
        "the solver practises a fresh pool of the updated challenger, and no task of the buffer again",
        "the buffer is that of the rounds before",
        "the buffer begins with one task: none are written by the base model before round 1",
        "an answer counts in its block alone: no tags for thought and answer are asked for",
        "programs are held by an allow-list, where the release bans words",
    ),
    "darc": (
        "the corpus is one's own: the release's could not be read, and no judge chooses its documents",
        "the solver that labels is that of its round's beginning, not of each step",
        "a group below the share of votes is left out of its step, not given advantages of 0",
        "the curriculum is written in one part a round, and near-duplicates are sought within a part",
        "a phase's KL is to the weights that it began with: the release's one phase has the base model's",
        "answers are equal by this project's checker: the release counts labels letter by letter",
        "while the questioner learns, answers have sampling.top_p: the release has top-p 1, top-k 40",
        "both stages have one limit of prompts and one of responses: the release has 3,000 tokens for a"
        " questioner's response, and 8,192 for a solver's prompt",
    ),
    "spice": (
        "spice is played as DARC's repository implements it again: no release by its authors was found",
        "one update of both roles is played as two phases: the challenger's, then the solver's from there",
        "the solver practises one completion of each document, of a fresh pool of the updated challenger: the"
        " source takes a random valid one of eight that the challenger is trained on",
        "a phase's KL is to the weights that it began with: the source's is to the model before training",
        "without a judge nothing is played: the source then takes every question for related",
        "a document is cut until its prompt fits: the source cuts the prompt's beginning",
        "answers are compared by this project's checker",
    ),
}
"""Methods that are compared with their own source, and what no setting of theirs says."""


PAGES = {"absolute-zero": "absolute-zero", "darc": "darc", "spice": "spice"}
"""Where a method has a page of its own."""


def _of_source(method: str) -> dict[str, tuple[Any, str]]:
    if method not in SOURCES:
        return {}
    stated = f"{method}: docs/reference/{PAGES.get(method, 'methods')}.md"
    own = values_of_method(method).values
    return {"method": (method, stated)} | {".".join(path): (value, stated) for path, value in own.items()}


def _agrees(value: Any, expected: Any) -> bool:
    return value in expected.values if isinstance(expected, OneOf) else value == expected
