"""What was measured of each round: verdicts, why candidates were invalid, what the truth says of labels and
failures, the solver's scores and rewards."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from diagevo.memory.events import (
    CandidateScored,
    CheckpointEvaluated,
    Event,
    FailureObserved,
    StageAbandoned,
    StageCompleted,
)
from diagevo.memory.history import Abandoned, History


@dataclass(slots=True)
class Measured:
    """One round in measurements. Shares are None where nothing was there to be measured."""

    verdicts: Counter[str] = field(default_factory=Counter[str])
    responses: int = 0
    answers: int = 0
    rollouts: int = 0
    """Of another trainer, and how many passed its own check."""
    passes: int = 0
    undecided: int = 0
    """Pairs of answers that stand apart because comparing them came to no verdict."""
    invalid: Counter[str] = field(default_factory=Counter[str])
    """Invalid candidates by reason; `not_recorded` where the log is older than reasons."""
    judged: int = 0
    """Kept candidates whose truth is known, and how many of their labels are true."""
    true: int = 0
    failures: int = 0
    """Valid observations whose truth is known; against a false label; that give the true answer."""
    against_false_labels: int = 0
    right: int | None = None
    """None where it was never recorded."""
    validation: Mapping[str, float] = field(default_factory=dict[str, float])
    rewards: dict[str, float] = field(default_factory=dict[str, float])
    """Mean reward by stage."""
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """Wall time by stage."""

    @property
    def without_box(self) -> float | None:
        """The share of the responses to valid questions that state no answer: they are in N, and vote for
        none."""
        return (self.responses - self.answers) / self.responses if self.responses else None

    @property
    def pass_rate(self) -> float | None:
        """The share of another trainer's rollouts that passed."""
        return self.passes / self.rollouts if self.rollouts else None

    @property
    def labels_true(self) -> float | None:
        """The share of the kept labels that are true."""
        return self.true / self.judged if self.judged else None


def measured(
    history: History, round: int | None = None, *, candidates: bool = True, failures: bool = True
) -> dict[int, Measured]:
    """Every round of the run, or one, by number; 0 holds what was measured before the first. Without
    `failures` the observations, of which a run has most, are not read; without `candidates` neither these."""
    types: list[type[Event]] = [CheckpointEvaluated, StageCompleted]
    types += [CandidateScored] if candidates else []
    types += [FailureObserved, StageAbandoned] if candidates and failures else []
    found: dict[int, Measured] = {}
    labels: dict[str, bool | None] = {}
    observed: list[tuple[int, FailureObserved]] = []
    given_up = Abandoned()
    for fact in history.events(*types, round=round):
        number = fact.round
        now = found.setdefault(number, Measured())
        match fact.event:
            case CandidateScored() as scored:
                labels[scored.question_id] = scored.label_true
                _count(now, scored)
            case FailureObserved() as failed:
                observed.append((number, failed))
            case StageAbandoned() as event:
                given_up.add(number, event)
            case StageCompleted() as done:
                if done.reward is not None:
                    now.rewards[done.stage] = done.reward
                if done.seconds is not None:
                    now.seconds[done.stage] = done.seconds
            case CheckpointEvaluated(benchmark="validation", role="solver") as evaluated:
                now.validation = evaluated.metrics
            case _:
                pass
    for number, failed in observed:
        label_true = labels.get(failed.question_id)
        if label_true is not None and not given_up.void(number, failed):
            now = found[number]
            now.failures += 1
            now.against_false_labels += not label_true
            if failed.right is not None:
                now.right = (now.right or 0) + failed.right
    return found


def labels_true(history: History, round: int) -> float | None:
    """The share of a round's kept labels that are true, as `Measured` has it and a third faster: a list of
    runs asks each of them."""
    known = [
        fact.event.label_true
        for fact in history.events(CandidateScored, round=round)
        if fact.event.verdict == "kept" and fact.event.label_true is not None
    ]
    return sum(known) / len(known) if known else None


def _count(now: Measured, scored: CandidateScored) -> None:
    now.verdicts[scored.verdict] += 1
    if scored.verdict == "invalid":
        now.invalid[scored.invalid_reason or "not_recorded"] += 1
        return
    if scored.votes_are == "answers":
        now.responses += scored.responses
        now.answers += sum(count for _, count in scored.votes)
    else:
        now.rollouts += scored.responses
        now.passes += scored.first
    now.undecided += scored.undecided
    if scored.verdict == "kept" and scored.label_true is not None:
        now.judged += 1
        now.true += scored.label_true
