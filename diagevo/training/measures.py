"""A phase's measurements of itself, and when they show that it trains on wrong numbers. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from diagevo.config.models import TrainingConfig
from diagevo.errors import WrongTrainingError
from diagevo.memory.events import PhaseFinding

SAMPLING_DIFFERENCE = "sampling/sampling_logp_difference/mean"  # TRL's name for it
TENSORS_APART = "sampling/tensors_apart"
LOWEST, HIGHEST = "rewards/lowest", "rewards/highest"
FIRST_KL = "kl/first_update"
COMPLETIONS, CUT_OFF = "completions/count", "completions/cut_off"
"""What the trainer adds to TRL's metrics of a step."""

NEARLY_ALL = 0.95
"""Share of truncated completions from which a phase learns only from beginnings."""


@dataclass(frozen=True, slots=True)
class PhaseMeasures:
    """One phase, from its first step, including steps before the checkpoint that it was resumed from."""

    steps: int
    first_kl: float | None
    """KL to the reference before the first update of step 1, where both are the same weights. None: no
    reference, or not a number."""
    sampling_gap: float | None
    """A step's mean of |Δ log p| between sampler and trainer, the worst. None: not a number."""
    reward_lowest: float
    reward_highest: float
    completions: int
    cut_off: int
    attention: str
    findings: tuple[PhaseFinding, ...] = ()


def measured(
    log: Sequence[Mapping[str, float | None]], training: TrainingConfig, *, reference: bool, attention: str
) -> PhaseMeasures:
    """The measurements from the metrics of a phase's steps. `reference`: whether there is a KL to one."""
    first = log[0].get(FIRST_KL) if reference else None
    gaps = [entry[SAMPLING_DIFFERENCE] for entry in log if SAMPLING_DIFFERENCE in entry]
    gap = max(map(_number, gaps)) if gaps else None
    lowest = min(_number(entry[LOWEST]) for entry in log)
    highest = max(_number(entry[HIGHEST]) for entry in log)
    completions = sum(round(_number(entry[COMPLETIONS])) for entry in log)
    cut_off = sum(round(_number(entry[CUT_OFF])) for entry in log)
    found: dict[PhaseFinding, bool] = {
        "wrong_reference": reference and not _number(first) <= training.first_kl,
        "stale_sampler": any(entry.get(TENSORS_APART) for entry in log),
        "wrong_sampler": gap is not None and not gap <= training.sampling_gap,
        "constant_reward": lowest == highest,
        "cut_off": cut_off >= NEARLY_ALL * completions,
    }
    return PhaseMeasures(
        steps=len(log),
        first_kl=finite(first),
        sampling_gap=finite(gap),
        reward_lowest=lowest,
        reward_highest=highest,
        completions=completions,
        cut_off=cut_off,
        attention=attention,
        findings=tuple(name for name, holds in found.items() if holds),
    )


def _number(value: float | None) -> float:
    """TRL logs None for what is not a number: above every bound."""
    return float("inf") if value is None or value != value else value


def finite(value: float | None) -> float | None:
    """To six digits; None for what is not a number."""
    return float(f"{value:.6g}") if value is not None and isfinite(value) else None


def stop_where_wrong(measures: PhaseMeasures, training: TrainingConfig) -> None:
    """Raises WrongTrainingError if the reference or the sampler is wrong."""
    if "wrong_reference" in measures.findings:
        raise WrongTrainingError(
            f"the KL to the reference is {_shown(measures.first_kl)} at the first step, where policy and "
            f"reference have the same weights; at most {training.first_kl:g} is rounding. The reference has "
            "other weights than the phase started from.",
            hint="likely causes: a model folder that was changed while it was read, a model whose code draws "
            "random numbers. Another bound: diagevo train --resume --set training.first_kl=…",
            measures=measures,
        )
    if "stale_sampler" in measures.findings:
        raise WrongTrainingError(
            f"the sampler of step {measures.steps} did not have the trainer's weights: checksums of their "
            "tensors differ. It drew with those of a step before.",
            hint="vLLM did not take the new weights: is it a version that diagevo[vllm] names? Without it: "
            "diagevo train --resume --set hardware.colocate_vllm=false",
            measures=measures,
        )
    if "wrong_sampler" in measures.findings:
        raise WrongTrainingError(
            f"the log-prob gap between sampler and trainer is {_shown(measures.sampling_gap)}, "
            f"averaged over step {measures.steps}; at most {training.sampling_gap:g} is "
            "rounding. The sampler computes differently from the trainer.",
            hint="likely causes: another precision, quantization or another attention implementation. "
            "Another bound: diagevo train --resume --set training.sampling_gap=…",
            measures=measures,
        )


def _shown(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4g}"


def warnings(measures: PhaseMeasures) -> list[str]:
    """Warnings about a phase that finished but can hardly have learned anything, one line each."""
    lines = []
    if "constant_reward" in measures.findings:
        lines.append(
            f"the reward was {measures.reward_lowest:g} for all {measures.completions:,} completions: "
            "nothing could be learned from it"
        )
    if "cut_off" in measures.findings:
        lines.append(
            f"{measures.cut_off:,} of {measures.completions:,} completions were cut off at "
            "sampling.max_new_tokens: raise it, or find out why they do not end"
        )
    return lines
