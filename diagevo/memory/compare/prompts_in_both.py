"""The results of two runs, models or steps on the same prompts, matched by their text."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from diagevo.memory.compare.run_slices import RunSlice
from diagevo.memory.read.pass_rates import last_causes


@dataclass(frozen=True, slots=True)
class PromptInBoth:
    """A prompt that passed less or more often in the second of two runs, models or steps, as each had it
    last."""

    question: str
    """Its digest."""
    prompt: str
    pass_rates: tuple[float, float]
    cause_id: str | None
    """In the second, the cause of most of its last failures that have one."""


@dataclass(frozen=True, slots=True)
class PromptsInBoth:
    """The results of two of them on the same prompts."""

    prompts: int
    alone: tuple[int, int]
    """Prompts that only one of them has."""
    pass_rates: tuple[float, float]
    """Means over these prompts; 0 where there are none."""
    less: int
    """Prompts that passed less often in the second."""
    more: int
    drops: tuple[PromptInBoth, ...]
    """All that passed less often, largest drop first."""
    rises: tuple[PromptInBoth, ...]
    """All that passed more often, largest rise first."""
    differences: tuple[float, float]
    """Of the pass rates, second minus first: their mean, and its standard error paired by prompt."""


def prompts_in_both(a: RunSlice, b: RunSlice) -> PromptsInBoth:
    """Each prompt as either had it last."""
    left, right = _last_rates(a), _last_rates(b)
    both = [(prompt, (rate, right[prompt])) for prompt, rate in left.items() if prompt in right]
    fell = sorted((one for one in both if one[1][1] < one[1][0]), key=lambda one: one[1][1] - one[1][0])
    rose = sorted((one for one in both if one[1][1] > one[1][0]), key=lambda one: one[1][0] - one[1][1])
    prompts = [prompt for prompt, _ in (*fell, *rose)]
    texts = a.history.texts(prompts)
    causes = last_causes(b.history, prompts, groups=b.groups)

    def in_both(found: Sequence[tuple[str, tuple[float, float]]]) -> tuple[PromptInBoth, ...]:
        return tuple(PromptInBoth(each, texts[each], rates, causes.get(each)) for each, rates in found)

    return PromptsInBoth(
        prompts=len(both),
        alone=(len(left) - len(both), len(right) - len(both)),
        pass_rates=(_mean([rates[0] for _, rates in both]), _mean([rates[1] for _, rates in both])),
        less=len(fell),
        more=len(rose),
        drops=in_both(fell),
        rises=in_both(rose),
        differences=_mean_and_error([rates[1] - rates[0] for _, rates in both]),
    )


def _last_rates(of: RunSlice) -> dict[str, float]:
    """Of each prompt by its digest, in the last step that has it."""
    found: dict[str, tuple[int, int, int]] = {}
    for group in of.groups.values():
        step, rollouts, passes = found.get(group.question, (group.step, 0, 0))
        if group.step > step:
            step, rollouts, passes = group.step, 0, 0
        if group.step == step:
            found[group.question] = step, rollouts + group.rollouts, passes + group.passes
    return {question: passes / rollouts for question, (_, rollouts, passes) in found.items()}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _mean_and_error(values: list[float]) -> tuple[float, float]:
    mean, n = _mean(values), len(values)
    return mean, sqrt(sum((one - mean) ** 2 for one in values) / (n - 1) / n) if n > 1 else 0.0
