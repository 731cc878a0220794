"""What passed of another trainer's rollouts, by its own check: by step, and by the cause of what failed."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from diagevo.memory.audit.groups import Attempts
from diagevo.memory.audit.rollouts import Rollouts, rate, rollouts
from diagevo.memory.events import GroupIngested, number_of
from diagevo.memory.history import History
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.log.log import Log
from diagevo.text.escaping import visible
from diagevo.text.numbers import count
from diagevo.text.steps import common_head

DROPS = 20
"""Prompts that are listed."""
SHOWN = 60
"""Characters of a prompt in a sentence."""


@dataclass(frozen=True, slots=True)
class StepRate:
    """The groups of one step. `contrast`: with passes and failures."""

    step: int
    round: int
    groups: int
    all_passed: int
    contrast: int
    all_failed: int
    rollouts: int
    passes: int
    pass_rate: float


@dataclass(frozen=True, slots=True)
class CauseRate:
    """The failures that are assigned to a cause, and the groups in which they are."""

    cause_id: str
    description: str
    failures: int
    share: float
    """Of the failures of all opened rounds, slips and undiagnosed ones too."""
    groups: int
    rollouts: int
    passes: int
    pass_rate: float


@dataclass(frozen=True, slots=True)
class TagRate:
    """The groups whose prompt the files class so."""

    tag: str
    groups: int
    rollouts: int
    passes: int
    pass_rate: float


@dataclass(frozen=True, slots=True)
class PromptDrop:
    """A prompt that passed less often in the last step that had it than in the first."""

    prompt: str
    first_step: int
    first_pass_rate: float
    last_step: int
    last_pass_rate: float
    cause_id: str | None
    """The cause of most of its last failures that have one."""


@dataclass(frozen=True, slots=True)
class PromptFailures:
    """A prompt with failures that no cause explains."""

    prompt: str
    rollouts: int
    passes: int
    failures: int
    without_cause: int


@dataclass(frozen=True, slots=True)
class PassRates:
    source: str
    """Where the last rollouts came from."""
    failures: int
    """Observed ones, of all opened rounds."""
    steps: tuple[StepRate, ...]
    causes: tuple[CauseRate, ...]
    """Most failures first."""
    prompts: int
    """That came back in a later step."""
    again: tuple[float, float] | None
    """Their mean pass rate, the first and the last time."""
    again_se: float | None
    """The standard error of its change, paired by prompt; None of a single prompt."""
    dropped: int
    """Of them those that passed less often in the last step than in the first."""
    drops: tuple[PromptDrop, ...]
    """Those that fell most, up to `DROPS`."""
    rollouts: int
    failed: int
    """Rollouts that did not pass, whether they could be compared or not."""
    without_cause: int
    """Of them those that no cause explains."""
    uncompared: int
    """Of these those that stand beside neither a response that passed nor a known answer."""
    never: int
    """Prompts of which no rollout passed."""
    unexplained: tuple[PromptFailures, ...]
    """Those with most failures that no cause explains, up to `DROPS`."""
    tags: tuple[TagRate, ...] = ()
    """Lowest pass rate first."""
    head: int = 0
    """Characters that every prompt begins with, such as examples: lists leave them out."""

    @property
    def incomparable(self) -> str | None:
        """Why no failure stands beside a response that passed; None where one does, or nothing failed."""
        if not self.failed or any(step.contrast for step in self.steps):
            return None
        once = self.rollouts == sum(step.groups for step in self.steps)
        why = "every prompt was answered once" if once else "in no group did some pass and some fail"
        failed = f"{self.failed:,} of {count(self.rollouts, 'rollout')} failed"
        return f"{failed}, and none can be compared, as {why}"

    @property
    def left(self) -> str | None:
        """How many failures have no cause, and why; None where all have one."""
        if not self.without_cause:
            return None
        text = f"{self.without_cause:,} of {count(self.failed, 'rollout')} that failed have no cause"
        if self.uncompared:
            text += f", {self.uncompared:,} of them because none of their group passed"
        if self.never:
            text += f"; {count(self.never, 'prompt')} never passed"
        worst = self.unexplained[0]
        asked = visible(worst.prompt[self.head :], one_line=True)
        asked = asked if len(asked) <= SHOWN else f"{asked[: SHOWN - 1]}…"
        failed = f"{worst.failures:,} of {worst.rollouts:,} failed"
        return f"{text}. The most on one prompt are {worst.without_cause:,}, on “{asked}” ({failed})"


def pass_rate(log: Log, run_id: str) -> float | None:
    """Of all groups that stand; None where there are none."""
    attempts, passes, rollouts = Attempts.of(log, run_id), 0, 0
    for fact in log.chosen(run_id, [GroupIngested]):
        group = fact.event
        if not attempts.void(group.step, group.attempt):
            passes, rollouts = passes + group.passes, rollouts + len(group.rewards)
    return passes / rollouts if rollouts else None


def pass_rates(history: History) -> PassRates | None:
    """Of a whole run; None where no other trainer's rollouts are in it."""
    if history.ingested is None:
        return None
    found = rollouts(history)
    prompts = found.prompts()
    changes, dropped = _drops(prompts)
    failing = _prompts(found, prompts)
    left = sorted((one for one in failing if one.without_cause), key=lambda one: -one.without_cause)
    listed = [*(one.prompt for one in left[:DROPS]), *(prompt for prompt, _, _ in dropped[:DROPS])]
    texts = Artifacts(history.database).get_many([*listed, *list(prompts)[:DROPS]])
    causes = [_cause(found, cause, asked) for cause, asked in found.causes.items()]
    return PassRates(
        source=history.ingested,
        failures=found.failures,
        steps=tuple(_step(step, round_, groups) for (round_, step), groups in sorted(found.steps.items())),
        causes=tuple(sorted(causes, key=lambda one: (-one.failures, number_of(one.cause_id)))),
        prompts=len(changes),
        again=(fmean(a for a, _ in changes), fmean(b for _, b in changes)) if changes else None,
        again_se=stdev(b - a for a, b in changes) / len(changes) ** 0.5 if len(changes) > 1 else None,
        dropped=len(dropped),
        drops=_told(history, dropped[:DROPS], found),
        rollouts=sum(one.rollouts for one in failing),
        failed=sum(one.failures for one in failing),
        without_cause=sum(one.without_cause for one in left),
        uncompared=sum(len(one.rewards) for one in found.standing if not one.passes) - found.against_answers,
        never=sum(not one.passes for one in failing),
        unexplained=tuple(replace(one, prompt=texts[one.prompt]) for one in left[:DROPS]),
        tags=_tags(found.standing),
        head=common_head(set(texts.values())),
    )


def _tags(groups: Iterable[GroupIngested]) -> tuple[TagRate, ...]:
    of_tag: dict[str, list[GroupIngested]] = {}
    for group in groups:
        for tag in group.tags:
            of_tag.setdefault(tag, []).append(group)
    found: list[TagRate] = []
    for tag, tagged in of_tag.items():
        rollouts, passes = sum(len(one.rewards) for one in tagged), sum(one.passes for one in tagged)
        found.append(TagRate(tag, len(tagged), rollouts, passes, passes / rollouts))
    return tuple(sorted(found, key=lambda one: (one.pass_rate, one.tag)))


def _prompts(found: Rollouts, prompts: dict[str, dict[int, list[GroupIngested]]]) -> list[PromptFailures]:
    """Every prompt by its digest, in order of first appearance."""
    explained = Counter[str]()
    for asked in found.causes.values():
        for question_id, failures in asked.items():
            explained[found.questions[question_id].question] += failures
    told: list[PromptFailures] = []
    for prompt, by_step in prompts.items():
        groups = [group for of_step in by_step.values() for group in of_step]
        all_, passes = sum(len(one.rewards) for one in groups), sum(one.passes for one in groups)
        told.append(PromptFailures(prompt, all_, passes, all_ - passes, all_ - passes - explained[prompt]))
    return told


_Drop = tuple[str, tuple[int, float], tuple[int, float]]
"""The digest of a prompt, its first and its last step with the pass rate."""


def _drops(
    prompts: dict[str, dict[int, list[GroupIngested]]],
) -> tuple[list[tuple[float, float]], list[_Drop]]:
    """The first and last rate of prompts that came back, and those that fell, the furthest fallen first."""
    changes: list[tuple[float, float]] = []
    found: list[_Drop] = []
    for prompt, by_step in prompts.items():
        first, last = min(by_step), max(by_step)
        rates = rate(by_step[first]), rate(by_step[last])
        if last != first:
            changes.append(rates)
        if rates[1] < rates[0]:
            found.append((prompt, (first, rates[0]), (last, rates[1])))
    return changes, sorted(found, key=lambda drop: (drop[2][1] - drop[1][1], drop[0]))


def _told(history: History, drops: list[_Drop], found: Rollouts) -> tuple[PromptDrop, ...]:
    """With the prompt's text, and the cause of its last failures."""
    wanted = {prompt for prompt, _, _ in drops}
    texts, causes = Artifacts(history.database).get_many(list(wanted)), found.last_causes(wanted)
    return tuple(
        PromptDrop(texts[prompt], first_step, first, last_step, last, causes.get(prompt))
        for prompt, (first_step, first), (last_step, last) in drops
    )


def _step(step: int, round_: int, groups: list[GroupIngested]) -> StepRate:
    rollouts, passes = sum(len(one.rewards) for one in groups), sum(one.passes for one in groups)
    all_passed = sum(one.passes == len(one.rewards) for one in groups)
    all_failed = sum(one.passes == 0 for one in groups)
    return StepRate(
        step=step,
        round=round_,
        groups=len(groups),
        all_passed=all_passed,
        contrast=len(groups) - all_passed - all_failed,
        all_failed=all_failed,
        rollouts=rollouts,
        passes=passes,
        pass_rate=passes / rollouts,
    )


def _cause(found: Rollouts, cause: str, asked: Counter[str]) -> CauseRate:
    groups = [found.questions[name] for name in asked]
    all_, passes = sum(one.responses for one in groups), sum(one.first for one in groups)
    return CauseRate(
        cause_id=cause,
        description=found.descriptions[cause],
        failures=asked.total(),
        share=asked.total() / found.failures,
        groups=len(groups),
        rollouts=all_,
        passes=passes,
        pass_rate=passes / all_,
    )
