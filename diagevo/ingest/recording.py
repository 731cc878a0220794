"""Groups of rollouts as events. Ingesting the same files again changes nothing."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from msgspec.structs import replace

from diagevo.equations.filter import failing
from diagevo.errors import ConfigError, ConflictError
from diagevo.ingest.rollout_steps import LAST, RolloutGroup, RolloutStep, grouped, ingested, models
from diagevo.memory.events import FailedRollout, Feedback, GroupIngested, RunConfigured
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.memory import Memory
from diagevo.memory.state.model import Attempts
from diagevo.text.numbers import count, exact

if TYPE_CHECKING:
    from diagevo.config.models import Config, IngestConfig
    from diagevo.diagnosis.embedder import Embedder

Keep = Callable[[Sequence[str]], list[str]]


@dataclass(slots=True)
class IngestSummary:
    """What one call found, new or known. Groups by outcome: `contrast` has passes and failures, `all_failed`
    and `all_passed` have nothing to compare."""

    steps: int = 0
    new_steps: int = 0
    rollouts: int = 0
    unscored: int = 0
    """Rollouts without a reward; in no group."""
    groups: Counter[str] = field(default_factory=Counter[str])
    failures: int = 0
    """Failed rollouts of groups with a contrast: what the diagnostician will be asked about."""
    answered: int = 0
    """Groups in which all failed and the answer is known: they can be diagnosed against it."""
    differing: int = 0
    """Groups whose responses are not all the same text."""
    split: int = 0
    """Group names shared by several prompts; each prompt is a group."""
    repeated: int = 0
    """Rows identical to another row of their step."""
    models: list[str] = field(default_factory=list[str])
    """Models that shared a step: each has its own groups and tag."""
    cut: list[str] = field(default_factory=list[str])
    """Files that end inside a line; their steps are left for the next time."""
    left: list[int] = field(default_factory=list[int])
    """Steps unchanged since before the training was resumed: it has not reached them again."""
    notes: list[str] = field(default_factory=list[str])
    """What the files cannot tell."""


FAR = 2
"""A reward from which the scale is not 0 to 1, so that the threshold must be given."""


@dataclass(slots=True)
class Bar:
    """Whether the pass threshold is plausible, given the rewards seen so far."""

    pass_at: float
    named: bool
    """By the user, not by default."""
    option: str = "--pass-at {}"
    """The option that sets it."""
    least: float = math.inf
    most: float = -math.inf
    rollouts: int = 0
    answered: bool = False
    """Whether an answer is known, so that failures alone are useful."""

    def see(self, rewards: Iterable[float], *, answered: bool) -> None:
        for reward in rewards:
            self.least, self.most = min(self.least, reward), max(self.most, reward)
            self.rollouts += 1
        self.answered = self.answered or answered

    @property
    def parts(self) -> bool:
        """Whether a pass stands beside a failure."""
        return self.least < self.pass_at <= self.most

    def refuse_far(self) -> None:
        """Raises ConfigError for rewards on another scale if the threshold was not given."""
        if self.most >= FAR and not self.named:
            seen = (
                f"rewards range from {exact(self.least)} to {exact(self.most)}"
                if self.least < self.most
                else f"every reward is {exact(self.most)}"
            )
            raise ConfigError(f"{seen}, and {exact(self.pass_at)} or more would pass", hint=self._hint)

    def one_sided(self) -> str:
        """The note if all rollouts passed or all failed. Raises ConfigError if a wrong threshold is
        likelier than a model that is always right or always wrong."""
        least, most = self.least, self.most
        seen = f"seen {exact(least)} to {exact(most)}" if least < most else f"every one is {exact(most)}"
        what = f"all of {count(self.rollouts, 'rollout')} {'passed' if least >= self.pass_at else 'failed'}: "
        what += f"a reward of {exact(self.pass_at)} or more passes, {seen}"
        if least == most or (self.named and most < self.pass_at and self.answered):
            return f"{what} ({self.option.format('').strip()})"
        raise ConfigError(what, hint=self._hint)

    @property
    def _hint(self) -> str:
        return f"set the lowest reward that passes: {self.option.format(exact(self.most))}"


def configure(memory: Memory, config: "Config", embedder: "Embedder") -> None:
    """Record the diagnostician and the embedder of an empty run."""
    from diagevo.diagnosis.embedder import identity

    values, found = config.model_dump(mode="json"), identity(embedder)
    memory.configure(RunConfigured(config=values, models={}, embedder=found, version=version("diagevo")))


class Recorder:
    """Appends steps to a run, each in its batch of `steps_per_round` steps. A step never goes into the
    batch of an open or committed round."""

    def __init__(self, memory: Memory, settings: "IngestConfig", *, resumed: bool = False) -> None:
        """`resumed`: a step with other rollouts was rewritten by the same training, from a checkpoint."""
        self.memory = memory
        self.settings = settings
        self.resumed = resumed
        attempts = Attempts(memory.log.chosen(memory.run_id, [GroupIngested]))
        self._last_attempt = attempts.last
        self.batches: dict[int, int] = {}
        """The batch of each recorded step: the round that it was first put into."""
        self._groups: Counter[int] = Counter()
        """And its number of groups."""
        self._attempt: dict[int, int] = {}
        """And the training's attempt."""
        self._void: dict[int, tuple[int, int]] = {}
        """Batch and attempt of steps that a resumed training has not reached again."""
        for batch, group in ingested(memory, 0, LAST):
            if not attempts.void(group.step, group.attempt):
                self.batches[group.step] = batch
                self._groups[group.step] += 1
                self._attempt[group.step] = group.attempt
            else:
                self._void[group.step] = batch, group.attempt
        self.filled = Counter(self.batches.values())
        self._batch: tuple[int, list[GroupIngested]] = 0, []
        """The last compared batch, and all its groups: its steps are consecutive."""

    def record(self, steps: Iterable[RolloutStep], report: IngestSummary) -> None:
        """Steps in one transaction. Raises ConflictError if one was recorded with other rollouts, and no
        training was resumed: then none is recorded, and the recorder is unusable."""
        with self.memory.atomic():
            for step in steps:
                self._step(step, report)

    def _step(self, step: RolloutStep, report: IngestSummary) -> None:
        groups = grouped(step.rollouts)
        report.steps += 1
        report.unscored += step.unscored
        report.rollouts += len(step.rollouts)
        report.differing += sum(len(set(group.responses)) > 1 for group in groups)
        report.repeated += step.repeated
        report.models = sorted({*report.models, *models(step.rollouts)})
        named = Counter(name for name, _ in {(g.name, g.prompt) for g in groups if g.name is not None})
        report.split += sum(prompts > 1 for prompts in named.values())
        if not groups:
            return
        events = self.take(step, groups, report)
        if events is None:
            return
        for event in events:
            report.groups[outcome(event)] += 1
            if event.reference is not None:
                report.failures += len(event.failed)
            elif event.failed and event.answer is not None:
                report.answered += 1

    def take(
        self, step: RolloutStep, groups: Sequence[RolloutGroup], report: IngestSummary
    ) -> list[GroupIngested] | None:
        """Record a step's groups if they are new, and return them as events. None if they are unchanged
        since before the training was resumed."""
        known = self._recorded(step.number)
        described = step.number, step.source, groups, self.settings.pass_at
        events = events_of(_digests, *described) if known else []
        if not _matches(known, events) or not known:
            try:
                events = events_of(self.memory.artifacts.put_many, *described)
            except ConfigError as error:  # a text too long for a bundle
                raise ConfigError(f"{step.source}: {error.message}", hint=error.hint) from error
        if step.number in self.batches:
            if not _matches(known, events):
                if _grown(known, events):
                    raise _recorded_otherwise(
                        step, " It has grown since, so it does not come from a resumed training."
                    )
                if not self.resumed:
                    raise _recorded_otherwise(step)
                self._resume(step.number, events)
                report.new_steps += 1
        elif known and _matches(known, events):
            report.left.append(step.number)  # the resumed training has not reached it again
            return None
        else:
            self._append(events, self._next_batch())
            report.new_steps += 1
        return events

    def _recorded(self, step: int) -> list[GroupIngested]:
        """A step's last recorded groups, valid or not."""
        if step in self.batches:
            batch, attempt = self.batches[step], self._attempt[step]
        elif step in self._void:
            batch, attempt = self._void[step]
        else:
            return []
        if self._batch[0] != batch:
            self._batch = batch, [group for _, group in ingested(self.memory, batch, batch)]
        return [group for group in self._batch[1] if (group.step, group.attempt) == (step, attempt)]

    def _append(self, events: Sequence[GroupIngested], batch: int) -> None:
        step, attempt = events[0].step, self._last_attempt
        self._batch = 0, []  # it may be the one still growing
        self.memory.ingested([replace(event, attempt=attempt) for event in events], batch)
        self._groups[step], self._attempt[step] = len(events), attempt
        self.batches[step] = batch
        self.filled[batch] += 1

    def _resume(self, step: int, events: Sequence[GroupIngested]) -> None:
        """The training went back to the checkpoint before this step: records of later steps are void, and
        rounds that contain one of them are superseded. One transaction."""
        first, state = self.batches[step], self.memory.state
        with self.memory.atomic():
            held = [one.round for one in state.began if state.batch(one.round) >= first]
            if held:
                from diagevo.ingest.rounds import Rounds

                Rounds(self.memory).supersede(min(held), f"the training was resumed before step {step}")
            self._last_attempt += 1
            for later in [number for number in self.batches if number >= step]:
                self._void[later] = self.batches.pop(later), self._attempt[later]
            self.filled = Counter(self.batches.values())
            self._append(events, first)

    def _next_batch(self) -> int:
        state = self.memory.state
        first = state.batch(state.last_opened + 1)
        last = max(self.filled, default=0)
        if last < first:
            return first
        return last if self.filled[last] < self.settings.steps_per_round else last + 1


def _matches(known: Sequence[GroupIngested], events: Sequence[GroupIngested]) -> bool:
    return [_compared(group) for group in known] == [_compared(group) for group in events]


def _compared(group: GroupIngested) -> GroupIngested:
    """As version 1 kept it, and without its attempt: only the first pass, and failures next to one. Tags
    were not always unique, and feedback on passes was not kept."""
    failed = group.failed if group.reference is not None else []
    samples = {each.sample for each in group.failed}
    feedback = [each for each in group.feedback if each.sample in samples]
    tags = list(dict.fromkeys(group.tags))
    return replace(group, attempt=1, failed=failed, passed=[], feedback=feedback, tags=tags)


def _grown(known: Sequence[GroupIngested], events: Sequence[GroupIngested]) -> bool:
    """Whether a step has only grown: it was read while it was being written."""
    pairs = list(zip(known, events, strict=False))
    more = len(known) < len(events) or any(len(old.rewards) < len(new.rewards) for old, new in pairs)
    return (
        more
        and len(known) <= len(events)
        and all(
            (old.question, old.rewards) == (new.question, new.rewards[: len(old.rewards)])
            for old, new in pairs
        )
    )


def _recorded_otherwise(step: RolloutStep, why: str = "") -> ConflictError:
    return ConflictError(
        f"step {step.number} of {step.source} is recorded with other rollouts."
        + (why or " Was the training resumed before it, or is it another one?"),
        hint="ingest another training as a separate run: --run NAME; follow a running one with --follow"
        if why
        else "the same training, resumed from a checkpoint: --resumed; another one: --run NAME",
    )


def _digests(texts: Sequence[str]) -> list[str]:
    return [digest_of(text) for text in texts]


def events_of(
    keep: Keep, step: int, source: str, groups: Sequence[RolloutGroup], pass_at: float
) -> list[GroupIngested]:
    """A step's groups as events. Every failure is kept, every pass next to a failure, and the first if all
    passed, because contrasts are also measured on it. The feedback on each is kept with it. `keep` stores
    texts, or only names them, by digest."""
    parts: list[tuple[RolloutGroup, list[int], list[int]]] = []
    texts: list[str] = []
    for group in groups:
        failed = failing(group.rewards, pass_at)
        passed = [place for place, reward in enumerate(group.rewards) if reward >= pass_at]
        kept = passed if failed else passed[:1]
        parts.append((group, failed, passed))
        texts += [group.prompt, *(group.responses[place] for place in [*kept, *failed])]
        texts += [group.feedback[place] for place in [*kept, *failed] if place in group.feedback]
    digests = iter(keep(texts))
    events: list[GroupIngested] = []
    for number, (group, failed, passed) in enumerate(parts):
        question = next(digests)
        kept = [next(digests) for _ in (passed if failed else passed[:1])]
        events.append(
            GroupIngested(
                step=step,
                group=number,
                question=question,
                answer=group.answer,
                rewards=group.rewards,
                passes=len(passed),
                reference=kept[0] if failed and kept else None,
                failed=[FailedRollout(sample=place, trajectory=next(digests)) for place in failed],
                source=source,
                draw=group.draw,
                passed=kept,
                feedback=[
                    Feedback(sample=place, text=next(digests))
                    for place in [*(passed if failed else passed[:1]), *failed]
                    if place in group.feedback
                ],
                tags=list(group.tags),
            )
        )
    return events


def outcome(event: GroupIngested) -> str:
    """contrast, all_failed or all_passed."""
    if event.reference is not None:
        return "contrast"
    return "all_passed" if event.passes else "all_failed"
