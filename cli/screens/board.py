"""What the displays of `train` know of a run, and its lines in words."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from diagevo.progress import STAGES, VALIDATION, Observer, RoundFigures, StageProgress
from diagevo.text.lines import listed
from diagevo.text.numbers import fraction, number

ORDER = (*STAGES, VALIDATION)
"""What a round is shown to consist of."""
REASONS = ("invalid", "no_label", "too_easy", "too_hard", "contested")


@dataclass
class Board(Observer):
    """Keeps what is reported of a run. What it shows is its subclasses'; this one shows nothing."""

    run: str
    round: int = 0
    rounds: int = 0
    epsilon: Fraction | None = None
    failures: int | None = None
    stage: str = ""
    attempt: int = 1
    done: int = 0
    total: int | None = None
    detail: str = ""
    newest_cause: str | None = None
    opened: float = field(default_factory=lambda: time.monotonic())
    started: float = 0.0
    """When the stage began."""
    first: tuple[float, int] | None = None
    """When a resumed stage first reported progress, and how far it was then."""
    earlier: dict[int, dict[str, float]] = field(default_factory=dict)
    """Stages that the log has of a run that is resumed, by round."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Stages of this round that are complete."""
    before: dict[str, float] = field(default_factory=dict)
    """Stages of the last committed round: what the time left is estimated from."""
    played: dict[str, float] = field(default_factory=dict)
    """Stages of all rounds."""
    notes: dict[str, Mapping[str, object]] = field(default_factory=dict)
    history: list[RoundFigures] = field(default_factory=list)

    def resumed(self, seconds: Mapping[int, Mapping[str, float]], newest_cause: str | None) -> None:
        self.newest_cause = newest_cause
        self.earlier = {round: dict(stages) for round, stages in seconds.items()}
        for stages in self.earlier.values():
            self._add(stages)
        super().resumed(seconds, newest_cause)

    def showing(self) -> AbstractContextManager[Any]:
        """The context in which the display is on."""
        return nullcontext()

    def round_started(self, round: int, rounds: int, epsilon: Fraction, failures: int | None) -> None:
        self.round, self.rounds, self.epsilon, self.failures = round, rounds, epsilon, failures
        self.seconds, self.notes, self.stage = dict(self.earlier.get(round, {})), {}, ""
        self.before = self.before or self.earlier.get(round - 1, {})
        super().round_started(round, rounds, epsilon, failures)

    def stage_started(self, round: int, stage: str, attempt: int, total: int | None) -> None:
        self.round = round
        self.stage, self.attempt, self.total, self.done, self.detail = stage, attempt, total, 0, ""
        self.started, self.first = time.monotonic(), None
        super().stage_started(round, stage, attempt, total)

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        if self.first is None:
            self.first = (time.monotonic(), progress.done)
        self.done, self.detail = progress.done, progress.detail or self.detail
        self.total = self.total if progress.total is None else progress.total
        super().stage_progress(round, stage, progress)

    def stage_finished(self, round: int, stage: str, seconds: float, summary: Mapping[str, object]) -> None:
        self.seconds[stage] = seconds
        self._add({stage: seconds})
        self.notes[stage] = summary
        self.stage = ""
        if newest := summary.get("newest cause"):
            self.newest_cause = str(newest)
        super().stage_finished(round, stage, seconds, summary)

    def round_finished(self, round: int, figures: RoundFigures) -> None:
        self.before = dict(self.seconds)
        self.history.append(figures)
        super().round_finished(round, figures)

    def _add(self, seconds: Mapping[str, float]) -> None:
        for stage, spent in seconds.items():
            self.played[stage] = self.played.get(stage, 0.0) + spent

    @property
    def ended(self) -> bool:
        """Whether the last round is committed."""
        return bool(self.history) and self.history[-1].round == self.rounds

    def elapsed(self) -> float:
        return time.monotonic() - self.started if self.stage else 0.0

    def whole(self) -> float:
        """Seconds of the run: of the stages in the log, and since it was opened here."""
        logged = sum(sum(stages.values()) for stages in self.earlier.values())
        return logged + time.monotonic() - self.opened

    def stage_left(self) -> float | None:
        """Seconds left in the stage: from its own pace, else from the round before."""
        if not self.stage:
            return None
        since, base = (self.started, 0) if self.attempt == 1 or self.first is None else self.first
        if self.total and self.done > base:
            return (time.monotonic() - since) / (self.done - base) * max(self.total - self.done, 0)
        if self.stage in self.before:
            return max(self.before[self.stage] - self.elapsed(), 0.0)
        return None

    def run_left(self) -> float | None:
        """Seconds left in the run, once a whole round is known; None when nothing is left."""
        if not self.before or self.ended:
            return None
        waiting = ORDER[ORDER.index(self.stage) + 1 :] if self.stage in ORDER else ORDER
        later = [stage for stage in waiting if stage not in self.seconds]
        in_round = (self.stage_left() or 0.0) + sum(self.before.get(stage, 0.0) for stage in later)
        return in_round + (self.rounds - self.round) * sum(self.before.values())

    def shares(self) -> dict[str, float]:
        """Each stage's percent of the time so far."""
        spent = dict(self.played)
        if self.stage:
            spent[self.stage] = spent.get(self.stage, 0.0) + self.elapsed()
        whole = sum(spent.get(stage, 0.0) for stage in STAGES)
        return {stage: 100 * spent.get(stage, 0.0) / whole if whole else 0.0 for stage in STAGES}

    def progress(self) -> str:
        """How far the stage is: "85/314, mean reward 0.210, 0:04 so far, 0:06 left"."""
        parts = [f"{self.done:,}/{self.total:,}"] if self.total is not None else []
        parts += [self.detail] if self.detail else []
        parts.append(f"{clock(self.elapsed())} so far")
        left = self.stage_left()
        return ", ".join(parts + ([f"{clock(left)} left"] if left else []))


def named(round: int, stage: str) -> str:
    """A stage of a round; round 0 is the model that the run begins with."""
    return f"round {round} {stage}" if round else f"base model {stage}"


def clock(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def note(summary: Mapping[str, object]) -> str:
    """A stage's summary in one line: "kept 210, too easy 130, reward -0.031"."""
    parts: list[str] = []
    for key, value in summary.items():
        if isinstance(value, Mapping):
            parts += [note({str(k): v}) for k, v in value.items()]
        elif isinstance(value, float | Fraction):
            parts.append(f"{key} {number(value)}")
        elif value is not None:
            parts.append(f"{key.replace('_', ' ')} {value}")
    return ", ".join(parts)


def invalid(reasons: Mapping[str, int]) -> str:
    """Why candidates were invalid: "66 held out, 21 outside world"."""
    return ", ".join(
        f"{n} {why.replace('_', ' ')}" for why, n in sorted(reasons.items(), key=lambda r: -r[1])
    )


def round_line(done: RoundFigures) -> str:
    """A committed round in one line."""
    found = {verdict.replace("_", " "): done.verdicts.get(verdict, 0) for verdict in REASONS}
    dropped = [f"{n} {verdict}" for verdict, n in found.items() if n]
    if done.invalid:
        dropped[0] += f" ({invalid(done.invalid)})"
    parts = [f"kept {done.kept}/{done.candidates}" + (f" (dropped: {', '.join(dropped)})" if dropped else "")]
    if done.labels_true is not None:
        parts.append(f"labels true {done.labels_true:.3f}")
    if done.against_false_labels:
        false = f"{done.against_false_labels} of {done.failures_judged} failures against a false label"
        parts.append(false + (f" ({done.right} of them right)" if done.right else ""))
    if done.without_box:
        parts.append(f"without a box {done.without_box:.3f}")
    if done.undecided:
        parts.append(f"undecided comparisons {done.undecided}")
    if done.mean_at_k is not None:
        parts.append(f"mean@k {done.mean_at_k:.3f}")
    if done.greedy is not None:
        parts.append(f"greedy {done.greedy:.3f}")
    if done.mean_at_k_best is not None:
        parts.append(f"at its best temperature {done.mean_at_k_best:.3f}")
    if done.solver_reward is not None:
        parts.append(f"reward {done.solver_reward:.3f}")
    parts += [
        f"F {done.failures}",
        f"z {fraction(done.z)}",
        f"ε next {fraction(done.epsilon_next)}",
        f"Active {done.active}, Mastered {done.mastered}, nodes {done.nodes}",
    ]
    if done.promoted:
        parts.append(f"promoted {len(done.promoted)}")
    if done.reactivated:
        parts.append(f"reactivated {listed(done.reactivated, 6)}")
    return " · ".join(parts)
