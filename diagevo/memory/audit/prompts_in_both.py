"""What two runs of another trainer's rollouts, or two rounds of one, gave for the same prompts."""

from dataclasses import dataclass

from diagevo.memory.audit.pass_rates import DROPS
from diagevo.memory.audit.rollouts import Rollouts, rate, rollouts
from diagevo.memory.history import AsOf, History
from diagevo.memory.log.artifacts import Artifacts


@dataclass(frozen=True, slots=True)
class PromptInBoth:
    """A prompt that passed less often in the second of two runs or rounds, as each had it last."""

    prompt: str
    pass_rates: tuple[float, float]
    cause_id: str | None
    """In the second, the cause of most of its last failures that have one."""


@dataclass(frozen=True, slots=True)
class PromptsInBoth:
    """What two runs, or one run up to two rounds, gave for the same prompts."""

    prompts: int
    pass_rates: tuple[float, float]
    """Means over these prompts; 0 where there are none."""
    less: int
    """Prompts that passed less often in the second run."""
    more: int
    drops: tuple[PromptInBoth, ...]
    """Those that fell most, up to `DROPS`."""


def prompts_in_both(a: History, b: History, at_a: AsOf, at_b: AsOf) -> PromptsInBoth | None:
    """Prompts are matched by their text; None where one has no rollouts of another trainer."""
    if a.ingested is None or b.ingested is None:
        return None
    of_a, of_b = rollouts(a, at_a.round), rollouts(b, at_b.round)
    left, right = _last_rates(of_a), _last_rates(of_b)
    both = [(prompt, (rate, right[prompt])) for prompt, rate in left.items() if prompt in right]
    fell = sorted((one for one in both if one[1][1] < one[1][0]), key=lambda one: one[1][1] - one[1][0])
    shown = [prompt for prompt, _ in fell[:DROPS]]
    texts, causes = Artifacts(a.database).get_many(shown), of_b.last_causes(set(shown))
    return PromptsInBoth(
        prompts=len(both),
        pass_rates=(_mean([rates[0] for _, rates in both]), _mean([rates[1] for _, rates in both])),
        less=len(fell),
        more=sum(rates[1] > rates[0] for _, rates in both),
        drops=tuple(PromptInBoth(texts[each], rates, causes.get(each)) for each, rates in fell[:DROPS]),
    )


def _last_rates(found: Rollouts) -> dict[str, float]:
    """Of each prompt by its digest, in the last step that has it."""
    return {prompt: rate(by_step[max(by_step)]) for prompt, by_step in found.prompts().items()}


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
