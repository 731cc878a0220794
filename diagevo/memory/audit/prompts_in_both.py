"""What two runs of another trainer's rollouts, or two rounds of one, gave for the same prompts."""

from collections import Counter
from dataclasses import dataclass

from diagevo.memory.audit.groups import Attempts
from diagevo.memory.audit.pass_rates import DROPS, last_causes, mean_rate
from diagevo.memory.events import CandidateScored, CauseCreated, CauseMatched, GroupIngested
from diagevo.memory.history import AsOf, History
from diagevo.memory.log.artifacts import Artifacts

LAST_BATCH = 2**31
"""No batch comes after it."""


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
    left, right = _last_rates(a, at_a.round), _last_rates(b, at_b.round)
    both = [(prompt, (rate, right[prompt])) for prompt, rate in left.items() if prompt in right]
    fell = sorted((one for one in both if one[1][1] < one[1][0]), key=lambda one: one[1][1] - one[1][0])
    shown = [prompt for prompt, _ in fell[:DROPS]]
    texts, causes = Artifacts(a.database).get_many(shown), _causes_of(b, at_b.round, set(shown))
    return PromptsInBoth(
        prompts=len(both),
        pass_rates=(_mean([rates[0] for _, rates in both]), _mean([rates[1] for _, rates in both])),
        less=len(fell),
        more=sum(rates[1] > rates[0] for _, rates in both),
        drops=tuple(PromptInBoth(texts[each], rates, causes.get(each)) for each, rates in fell[:DROPS]),
    )


def _last_rates(history: History, until: int) -> dict[str, float]:
    """Of each prompt by its digest, in the last step that has it; of the last round all that was recorded."""
    # Each batch of rollouts is played by one of the rounds that count, in order.
    batches = sum(round_ <= until for round_ in history.state(history.end).counted())
    if until >= history.end.round:
        batches = LAST_BATCH
    attempts = Attempts.of(history.log, history.run_id)
    last: dict[str, list[GroupIngested]] = {}
    for fact in history.log.chosen(history.run_id, ["GroupIngested"]):
        group = fact.event
        assert isinstance(group, GroupIngested)
        if fact.round > batches or attempts.void(group.step, group.attempt):
            continue
        known = last.get(group.question)
        if known is not None and known[0].step == group.step:
            known.append(group)
        elif known is None or known[0].step < group.step:
            last[group.question] = [group]
    return {prompt: mean_rate(groups) for prompt, groups in last.items()}


def _causes_of(history: History, until: int, wanted: set[str]) -> dict[str, str]:
    """The causes of the last failures of these prompts, up to a round."""
    counted = {round_ for round_ in history.state(history.end).counted() if round_ <= until}
    groups: dict[str, CandidateScored] = {}
    by_cause: dict[str, Counter[str]] = {}
    types = ["CandidateScored", "CauseCreated", "CauseMatched"]
    for fact in history.log.chosen(history.run_id, types):
        if fact.round not in counted:
            continue
        match fact.event:
            case CandidateScored() as scored if scored.question in wanted:
                groups[scored.question_id] = scored
            case (
                CauseCreated(failure_id=name, cause_id=cause) | CauseMatched(failure_id=name, cause_id=cause)
            ):
                by_cause.setdefault(cause, Counter())[name.rpartition(".")[0]] += 1
            case _:
                pass
    return last_causes(groups, by_cause, wanted)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
