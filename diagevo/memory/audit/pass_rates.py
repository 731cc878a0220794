"""What passed of another trainer's rollouts, by its own check: by step, and by the cause of what failed."""

from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from diagevo.memory.audit.groups import Attempts
from diagevo.memory.events import (
    CandidateScored,
    CauseCreated,
    CauseMatched,
    FailureObserved,
    GroupIngested,
    number_of,
)
from diagevo.memory.history import History
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.log.log import Log
from diagevo.text.escaping import visible
from diagevo.text.numbers import count

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
        asked = visible(worst.prompt, one_line=True)
        asked = asked if len(asked) <= SHOWN else f"{asked[: SHOWN - 1]}…"
        failed = f"{worst.failures:,} of {worst.rollouts:,} failed"
        return f"{text}. The most on one prompt are {worst.without_cause:,}, on “{asked}” ({failed})"


def pass_rate(log: Log, run_id: str) -> float | None:
    """Of all groups that stand; None where there are none."""
    attempts, passes, rollouts = Attempts.of(log, run_id), 0, 0
    for fact in log.chosen(run_id, ["GroupIngested"]):
        group = fact.event
        assert isinstance(group, GroupIngested)
        if not attempts.void(group.step, group.attempt):
            passes, rollouts = passes + group.passes, rollouts + len(group.rewards)
    return passes / rollouts if rollouts else None


def pass_rates(history: History) -> PassRates | None:
    """Of a whole run; None where no other trainer's rollouts are in it."""
    if history.ingested is None:
        return None
    state = history.state(history.end)
    counted = state.counted()  # the round of each batch
    attempts = Attempts.of(history.log, history.run_id)
    steps: dict[tuple[int, int], list[GroupIngested]] = {}
    groups: dict[str, CandidateScored] = {}
    failures = against_answers = 0
    by_cause: dict[str, Counter[str]] = {}
    descriptions: dict[str, str] = {}
    types = ["GroupIngested", "CandidateScored", "FailureObserved", "CauseCreated", "CauseMatched"]
    for fact in history.log.chosen(history.run_id, types):
        round_ = fact.round
        if fact.type != "GroupIngested" and round_ not in counted:
            continue
        match fact.event:
            case GroupIngested() as group:
                if not attempts.void(group.step, group.attempt):
                    place = round_ - len(counted)  # its batch, behind those that were played
                    playing = state.last_opened + place if place > 0 else counted[round_ - 1]
                    steps.setdefault((playing, group.step), []).append(group)
            case CandidateScored() as scored:
                groups[scored.question_id] = scored
            case FailureObserved(against=against):
                failures += 1
                against_answers += against == "answer"
            case CauseCreated() as created:
                descriptions[created.cause_id] = created.description
                by_cause[created.cause_id] = Counter([created.failure_id.rpartition(".")[0]])
            case CauseMatched() as matched:
                by_cause[matched.cause_id][matched.failure_id.rpartition(".")[0]] += 1
            case _:
                pass
    causes = [
        _cause(cause, descriptions[cause], asked, [groups[name] for name in asked], failures)
        for cause, asked in by_cause.items()
    ]
    standing = [group for _, found in sorted(steps.items()) for group in found]
    changes, dropped = _drops(standing)
    prompts = _prompts(standing, groups, by_cause)
    left = sorted((one for one in prompts if one.without_cause), key=lambda one: -one.without_cause)
    texts = Artifacts(history.database).get_many([one.prompt for one in left[:DROPS]])
    return PassRates(
        source=history.ingested,
        failures=failures,
        steps=tuple(_step(step, round_, found) for (round_, step), found in sorted(steps.items())),
        causes=tuple(sorted(causes, key=lambda one: (-one.failures, number_of(one.cause_id)))),
        prompts=len(changes),
        again=(fmean(a for a, _ in changes), fmean(b for _, b in changes)) if changes else None,
        again_se=stdev(b - a for a, b in changes) / len(changes) ** 0.5 if len(changes) > 1 else None,
        dropped=len(dropped),
        drops=_told(history, dropped[:DROPS], groups, by_cause),
        rollouts=sum(one.rollouts for one in prompts),
        failed=sum(one.failures for one in prompts),
        without_cause=sum(one.without_cause for one in left),
        uncompared=sum(len(one.rewards) for one in standing if not one.passes) - against_answers,
        never=sum(not one.passes for one in prompts),
        unexplained=tuple(replace(one, prompt=texts[one.prompt]) for one in left[:DROPS]),
    )


def _prompts(
    standing: list[GroupIngested], groups: dict[str, CandidateScored], by_cause: dict[str, Counter[str]]
) -> list[PromptFailures]:
    """Every prompt by its digest, in order of first appearance."""
    explained = Counter[str]()
    for asked in by_cause.values():
        for question_id, failures in asked.items():
            explained[groups[question_id].question] += failures
    rollouts, passes = Counter[str](), Counter[str]()
    for one in standing:
        rollouts[one.question] += len(one.rewards)
        passes[one.question] += one.passes
    return [
        PromptFailures(prompt, all_, passes[prompt], failed, failed - explained[prompt])
        for prompt, all_ in rollouts.items()
        for failed in (all_ - passes[prompt],)
    ]


_Drop = tuple[str, tuple[int, float], tuple[int, float]]
"""The digest of a prompt, its first and its last step with the pass rate."""


def _drops(groups: list[GroupIngested]) -> tuple[list[tuple[float, float]], list[_Drop]]:
    """The first and last rate of prompts that came back, and those that fell, the furthest fallen first."""
    at: dict[str, dict[int, list[GroupIngested]]] = {}
    for one in groups:
        at.setdefault(one.question, {}).setdefault(one.step, []).append(one)
    changes: list[tuple[float, float]] = []
    found: list[_Drop] = []
    for prompt, by_step in at.items():
        first, last = min(by_step), max(by_step)
        rates = mean_rate(by_step[first]), mean_rate(by_step[last])
        if last != first:
            changes.append(rates)
        if rates[1] < rates[0]:
            found.append((prompt, (first, rates[0]), (last, rates[1])))
    return changes, sorted(found, key=lambda drop: (drop[2][1] - drop[1][1], drop[0]))


def mean_rate(groups: list[GroupIngested]) -> float:
    return sum(one.passes for one in groups) / sum(len(one.rewards) for one in groups)


def _told(
    history: History,
    drops: list[_Drop],
    groups: dict[str, CandidateScored],
    by_cause: dict[str, Counter[str]],
) -> tuple[PromptDrop, ...]:
    """With the prompt's text, and the cause of its last failures."""
    wanted = {prompt for prompt, _, _ in drops}
    texts = Artifacts(history.database).get_many(list(wanted))
    causes = last_causes(groups, by_cause, wanted)
    return tuple(
        PromptDrop(texts[prompt], first_step, first, last_step, last, causes.get(prompt))
        for prompt, (first_step, first), (last_step, last) in drops
    )


def last_causes(
    groups: dict[str, CandidateScored], by_cause: dict[str, Counter[str]], wanted: set[str]
) -> dict[str, str]:
    """By prompt, the cause of most failures of its last group that has any."""
    of_question: dict[str, Counter[str]] = {}
    for cause, asked in by_cause.items():
        for question_id, failures in asked.items():
            of_question.setdefault(question_id, Counter())[cause] = failures
    return {
        scored.question: of_question[question_id].most_common(1)[0][0]
        for question_id, scored in groups.items()  # in order of the log: the last one stays
        if scored.question in wanted and question_id in of_question
    }


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


def _cause(
    cause: str, description: str, asked: Counter[str], groups: list[CandidateScored], failures: int
) -> CauseRate:
    rollouts, passes = sum(one.responses for one in groups), sum(one.first for one in groups)
    return CauseRate(
        cause_id=cause,
        description=description,
        failures=asked.total(),
        share=asked.total() / failures,
        groups=len(groups),
        rollouts=rollouts,
        passes=passes,
        pass_rate=passes / rollouts,
    )
