"""Groups of rollouts as events. The same files again change nothing."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from diagevo.config.models import IngestConfig
from diagevo.equations.filter import failing
from diagevo.errors import ConflictError
from diagevo.ingest.rollouts import Group, Step, grouped
from diagevo.memory.events import FailedRollout, GroupIngested
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.memory import Memory


@dataclass(slots=True)
class Recorded:
    """What one call found, new or known. Groups by outcome: `contrast` has passes and failures, `all_failed`
    and `all_passed` have nothing to compare."""

    steps: int = 0
    new_steps: int = 0
    rollouts: int = 0
    unscored: int = 0
    """Rollouts without a reward; in no group."""
    groups: Counter[str] = field(default_factory=Counter[str])
    failures: int = 0
    """Rollouts that did not pass, of groups with a contrast: what the diagnostician will be asked about."""
    split: int = 0
    """Names of groups that stood by several prompts; each prompt is a group."""
    cut: list[str] = field(default_factory=list[str])
    """Files that end inside a line; their steps are left for the next time."""
    notes: list[str] = field(default_factory=list[str])
    """What the files cannot tell."""


class Recorder:
    """Appends steps to a run, each in the batch that it belongs to: `steps_per_round` steps, then the next.
    A step never goes into a batch that an open or committed round plays."""

    def __init__(self, memory: Memory, settings: IngestConfig) -> None:
        self.memory = memory
        self.settings = settings
        self.batches: dict[int, int] = {}
        """Batch of each step that is recorded: the round that it was first put into."""
        self._groups: Counter[int] = Counter()
        """And how many groups it was recorded with."""
        for found in memory.log.read(memory.run_id, types=["GroupIngested"]):
            event = found.event
            assert isinstance(event, GroupIngested)
            self.batches[event.step] = found.round
            self._groups[event.step] += 1
        self.filled = Counter(self.batches.values())

    def record(self, steps: Iterable[Step], report: Recorded) -> None:
        """All steps, in order."""
        for step in steps:
            self._step(step, report)

    def _step(self, step: Step, report: Recorded) -> None:
        """One step in one transaction. Raises ConflictError where it was recorded with other rollouts."""
        groups = grouped(step.rollouts)
        report.steps += 1
        report.unscored += step.unscored
        report.rollouts += len(step.rollouts)
        named = Counter(group.name for group in groups if group.name is not None)
        report.split += sum(prompts > 1 for prompts in named.values())
        if not groups:
            return
        events = events_of(self.memory.artifacts, step.number, step.source, groups, self.settings.pass_at)
        new = step.number not in self.batches
        batch = self._next_batch() if new else self.batches[step.number]
        if not new and self._groups[step.number] != len(events):
            raise _recorded_otherwise(step)
        try:
            self.memory.ingested(events, batch)
        except ConflictError as error:
            raise _recorded_otherwise(step) from error
        if new:
            self._groups[step.number] = len(events)
            self.batches[step.number] = batch
            self.filled[batch] += 1
            report.new_steps += 1
        for event in events:
            report.groups[outcome(event)] += 1
            report.failures += len(event.failed)

    def _next_batch(self) -> int:
        state = self.memory.state
        first = state.batch(state.last_opened + 1)
        last = max(self.filled, default=0)
        if last < first:
            return first
        return last if self.filled[last] < self.settings.steps_per_round else last + 1


def _recorded_otherwise(step: Step) -> ConflictError:
    return ConflictError(
        f"step {step.number} of {step.source} is recorded with other rollouts:"
        " was it still written, or is it another training?",
        hint="follow a training with --follow; ingest another one as a run of its own: --run NAME",
    )


def events_of(
    artifacts: Artifacts, step: int, source: str, groups: Sequence[Group], pass_at: float
) -> list[GroupIngested]:
    """A step's groups as events; of one with a contrast, the first pass and the failures are kept."""
    texts: list[str] = []
    passing: list[set[int]] = []
    for group in groups:
        passes = set(range(len(group.rewards))).difference(failing(group.rewards, pass_at))
        passing.append(passes)
        texts.append(group.prompt)
        if 0 < len(passes) < len(group.rewards):
            texts.append(group.responses[min(passes)])
            texts += [text for i, text in enumerate(group.responses) if i not in passes]
    digests = iter(artifacts.put_many(texts))
    events: list[GroupIngested] = []
    for place, (group, passes) in enumerate(zip(groups, passing, strict=True)):
        question, contrast = next(digests), 0 < len(passes) < len(group.rewards)
        reference = next(digests) if contrast else None
        failures = [i for i in range(len(group.rewards)) if contrast and i not in passes]
        events.append(
            GroupIngested(
                step=step,
                group=place,
                question=question,
                answer=group.answer,
                rewards=group.rewards,
                passes=len(passes),
                reference=reference,
                failed=[FailedRollout(sample=i, trajectory=next(digests)) for i in failures],
                source=source,
                draw=group.draw,
            )
        )
    return events


def outcome(event: GroupIngested) -> str:
    """contrast, all_failed or all_passed."""
    if event.reference is not None:
        return "contrast"
    return "all_passed" if event.passes else "all_failed"
