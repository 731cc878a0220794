"""A run's reports to its observers: plain values, no terminal, no models.

`run.train` calls an `Observer`; the command line implements it as a live view, plain lines or JSON lines. An
observer only reads: it returns nothing, and does not affect the run. All calls come from the run's main
thread, on rank 0 only.
"""

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from types import FrameType, MappingProxyType

from diagevo.errors import StoppedSafely
from diagevo.private import private
from diagevo.text.escaping import json_text
from diagevo.text.redaction import masked

_playing: ContextVar[str] = ContextVar("playing", default="sampling")


@contextmanager
def playing(name: str) -> Iterator[None]:
    """While a block runs, sets the name of the work shown in a cluster's own views."""
    token = _playing.set(name)
    try:
        yield
    finally:
        _playing.reset(token)


def now_playing() -> str:
    """The last name set by `playing`."""
    return _playing.get()


STAGES = ("challenger", "candidates", "votes", "solver", "diagnosis")
"""The stages of a round, in order."""
WARM_START = "warm-start"
"""The stage before those of round 1, if configured."""

VALIDATION = "validation"
"""Reported as an extra stage: measuring a round's solver; in round 0 the starting model."""
ORDER = (*STAGES, VALIDATION)
"""The displayed stages of a round."""

PAPER_SHARES: Mapping[str, float] = MappingProxyType(
    {"challenger": 27.1, "candidates": 10.9, "votes": 30.3, "solver": 25.9, "diagnosis": 5.7}
)
"""Percent of the time that each stage took in the paper ("Training Time Breakdown"); 0.1 is orchestration."""


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """The figures of one committed round, for every screen, page and frame. None means not measured."""

    round: int
    position: int
    """The position of its commit in the log."""
    failures: int
    """F: failures counted under Active causes after the commit."""
    z: Fraction | None
    """F over its reference; None while every round so far had F = 0."""
    epsilon_next: Fraction
    """ε of the next round: not the commit's if the run was reconfigured in between, as a fork is."""
    active: int
    mastered: int
    nodes: int
    candidates: int
    kept: int
    observed: int
    """Failures observed."""
    created: int
    """New causes."""
    promoted: tuple[str, ...]
    """Causes promoted in this round."""
    reactivated: tuple[str, ...]
    committed_at: str
    verdicts: Mapping[str, int]
    """Candidates by verdict: kept, too_easy, too_hard, contested, no_label, invalid."""
    invalid: Mapping[str, int]
    """Invalid candidates by reason: unreadable, unanswered, outside_world, held_out, too_long."""
    without_box: float | None = None
    """Share of the votes' responses without an answer; None if no question was asked."""
    undecided: int = 0
    """Pairs of answers that count as different because comparing them reached no verdict."""
    labels_true: float | None = None
    """Share of the kept labels that are true; this and the next three only if the truth is known."""
    failures_judged: int | None = None
    """Observed failures of questions whose truth is known."""
    against_false_labels: int | None = None
    """Those of them against a false label."""
    right: int | None = None
    """Those of these that give the true answer."""
    mean_at_k: float | None = None
    """Mean accuracy of the solver's samples at T = 1 on the validation set, after the round."""
    greedy: float | None = None
    mean_at_k_best: float | None = None
    """At the best of the temperatures that were sampled, chosen on other questions."""
    solver_reward: float | None = None
    challenger_reward: float | None = None
    """Mean over the steps of the stage."""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Wall time by stage."""
    rollouts: int = 0
    """Of another trainer; the share that passed its own check."""
    passes: int = 0
    pass_rate: float | None = None
    superseded_by: int | None = None
    """The round that repeats its groups, if it no longer counts."""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """`done` of `total` units of a stage; `detail`: one short line; `reward`: the mean of a training step."""

    done: int
    total: int | None
    detail: str = ""
    reward: float | None = None


class Observer:
    """Receives the progress of a run. This one ignores it."""

    def on_event(self, event: str, **what: object) -> None:
        """Each of the calls below, by its name and its arguments."""

    def resumed(self, seconds: Mapping[int, Mapping[str, float]], newest_cause: str | None) -> None:
        """A run resumes: the times of its stages so far by round, and the newest cause."""
        self.on_event("resumed", seconds=seconds, newest_cause=newest_cause)

    def round_started(self, round: int, rounds: int, epsilon: Fraction, failures: int | None) -> None:
        """Round `round` of `rounds` opens with its ε and the F before it (None before the first commit)."""
        self.on_event("round_started", round=round, rounds=rounds, epsilon=epsilon, failures=failures)

    def stage_started(self, round: int, stage: str, attempt: int, total: int | None) -> None:
        """A stage begins or is tried again; `total`: its units of work (steps, questions, …) if known."""
        self.on_event("stage_started", round=round, stage=stage, attempt=attempt, total=total)

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        """The current progress."""
        self.on_event("stage_progress", round=round, stage=stage, **asdict(progress))

    def stage_finished(self, round: int, stage: str, seconds: float, summary: Mapping[str, object]) -> None:
        """A stage is complete; `summary` holds plain values worth a line (counts, reward, reasons)."""
        self.on_event("stage_finished", round=round, stage=stage, seconds=seconds, summary=summary)

    def round_finished(self, round: int, figures: RoundFigures) -> None:
        """A round is committed."""
        self.on_event("round_finished", round=round, figures=figures)

    def message(self, text: str) -> None:
        """A line for the user: the path of a log file, a restart, a warning."""
        self.on_event("message", text=text)


@contextmanager
def handling_stops(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """While a block runs, handles SIGINT (Ctrl-C) and SIGTERM."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


PATIENCE = 20.0
"""Seconds after a stop request in which running work may finish; then it is aborted."""


class StopFlag:
    """Tells a run to stop at its next safe point, or after `PATIENCE` wherever it is. Set from a signal
    handler or another thread, read by anything that takes long.
    """

    def __init__(self, hint: str = "continue with: diagevo train --resume") -> None:
        """`hint`: how to resume what was stopped."""
        self._hint = hint
        self._asked_at: float | None = None

    def set(self) -> None:
        """On the second request, nothing is waited for."""
        self._asked_at = time.monotonic() if self._asked_at is None else -math.inf

    def set_overdue(self) -> None:
        """Used when the patience of another process has run out."""
        self._asked_at = -math.inf

    def __bool__(self) -> bool:
        return self._asked_at is not None

    @property
    def overdue(self) -> bool:
        """Whether running work must be aborted."""
        return self._asked_at is not None and time.monotonic() - self._asked_at >= PATIENCE

    def check(self, where: str | None = None) -> None:
        """At a safe point: raises StoppedSafely once a stop was requested."""
        if self:
            raise StoppedSafely(f"stopped {where or f'in {now_playing()}'}, as asked", hint=self._hint)

    def check_overdue(self) -> None:
        """In the middle of repeatable work: raises StoppedSafely if it must be aborted."""
        if self.overdue:
            self.check()


PROGRESS = "progress.json"
"""The progress file in a run's folder, for readers in another process (`diagevo view`)."""
SECONDS = 0.5
"""Minimum seconds between two writes for the replies of a stage; a training step is written at once."""
MESSAGES = 50
"""Number of last messages kept."""
POINTS = 200
"""Maximum rewards of a stage: with more steps every second one, and so on."""


@dataclass(slots=True)
class StageAttempt:
    """An attempt at a stage of the current round."""

    stage: str
    attempt: int = 1
    done: int = 0
    total: int | None = None
    detail: str = ""
    rewards: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    """Mean reward by training step."""
    seconds: float | None = None
    """None while it goes on."""


class RunProgress(Observer):
    """Keeps a run's reports, for displays, and in `file` for readers in another process."""

    def __init__(self, run: str, file: Path | None = None) -> None:
        self.run, self.file = run, file
        self.round = self.rounds = 0
        self.epsilon: Fraction | None = None
        self.failures: int | None = None
        self.stages: list[StageAttempt] = []
        """Of this round, in starting order."""
        self.notes: dict[str, Mapping[str, object]] = {}
        """Summaries of the completed ones."""
        self.messages: list[str] = []
        self.history: list[RoundFigures] = []
        self.newest_cause: str | None = None
        self.opened, self.started = time.monotonic(), 0.0
        """When the run was opened here, and when the stage began."""
        self.first: tuple[float, int] | None = None
        """When a resumed stage first reported progress, and its progress then."""
        self.earlier: dict[int, dict[str, float]] = {}
        """A resumed run's stages in the log, by round."""
        self.before: dict[str, float] = {}
        """Stages of the last committed round, from which the time left is estimated."""
        self.played: dict[str, float] = {}
        """Stages of all rounds."""
        self._written = 0.0

    @property
    def now(self) -> StageAttempt:
        """The running stage; one without a name between two stages."""
        last = self.stages[-1:]
        return last[0] if last and last[0].seconds is None else StageAttempt("")

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of this round's completed stages."""
        return {one.stage: one.seconds for one in self.stages if one.seconds is not None}

    def resumed(self, seconds: Mapping[int, Mapping[str, float]], newest_cause: str | None) -> None:
        self.newest_cause = newest_cause
        self.earlier = {round: dict(stages) for round, stages in seconds.items()}
        for stages in self.earlier.values():
            self._add(stages)
        super().resumed(seconds, newest_cause)

    def round_started(self, round: int, rounds: int, epsilon: Fraction, failures: int | None) -> None:
        self.round, self.rounds, self.epsilon, self.failures = round, rounds, epsilon, failures
        done = self.earlier.get(round, {})
        self.stages, self.notes = [StageAttempt(stage, seconds=spent) for stage, spent in done.items()], {}
        self.before = self.before or self.earlier.get(round - 1, {})
        self._write()
        super().round_started(round, rounds, epsilon, failures)

    def stage_started(self, round: int, stage: str, attempt: int, total: int | None) -> None:
        self.round = round
        self.stages.append(StageAttempt(stage, attempt, total=total))
        self.started, self.first = time.monotonic(), None
        self._write()
        super().stage_started(round, stage, attempt, total)

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        now = self._attempt(stage)
        if self.first is None:
            self.first = (time.monotonic(), progress.done)
        now.done, now.detail = progress.done, progress.detail or now.detail
        now.total = now.total if progress.total is None else progress.total
        if progress.reward is not None:
            now.rewards.append((progress.done, float(f"{progress.reward:.4g}")))
            if len(now.rewards) > POINTS:
                now.rewards = now.rewards[::-2][::-1]  # the last one stays
        if progress.reward is not None or time.monotonic() - self._written > SECONDS:
            self._write()
        super().stage_progress(round, stage, progress)

    def stage_finished(self, round: int, stage: str, seconds: float, summary: Mapping[str, object]) -> None:
        now = self._attempt(stage)
        now.seconds, now.detail = seconds, ", ".join(f"{name} {value}" for name, value in summary.items())
        self._add({stage: seconds})
        self.notes[stage] = summary
        if newest := summary.get("newest cause"):
            self.newest_cause = str(newest)
        self._write()
        super().stage_finished(round, stage, seconds, summary)

    def round_finished(self, round: int, figures: RoundFigures) -> None:
        self.before = self.seconds
        self.history.append(figures)
        self._write()
        super().round_finished(round, figures)

    def message(self, text: str) -> None:
        self.messages = [*self.messages, masked(text)][-MESSAGES:]
        self._write()
        super().message(text)

    def _add(self, seconds: Mapping[str, float]) -> None:
        for stage, spent in seconds.items():
            self.played[stage] = self.played.get(stage, 0.0) + spent

    def _attempt(self, stage: str) -> StageAttempt:
        """The running attempt; a stage reported before this process began has its own row."""
        found = next((one for one in reversed(self.stages) if one.stage == stage), None)
        if found is None:
            self.stages.append(found := StageAttempt(stage))
        return found

    def _write(self) -> None:
        """Atomic: a reader finds the old file or the new one.

        A full disk costs only the display, not the run.
        """
        if self.file is None:
            return
        last = self.history[-1] if self.history else None
        now = {
            "round": self.round,
            "rounds": self.rounds,
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "failures": self.failures,
            "stages": list(map(asdict, self.stages)),
            "messages": self.messages,
            "last": None if last is None else _in_words(last),
            "ended": last is not None and last.round == self.round,
        }
        beside = self.file.with_suffix(".json.new")
        try:
            with open(beside, "w", encoding="utf-8", opener=private) as file:
                file.write(json_text(now))
            os.replace(beside, self.file)
        except OSError:
            return
        self._written = time.monotonic()

    @property
    def ended(self) -> bool:
        """Whether the last round is committed."""
        return bool(self.history) and self.history[-1].round == self.rounds

    def elapsed(self) -> float:
        return time.monotonic() - self.started if self.now.stage else 0.0

    def whole(self) -> float:
        """Seconds of the run: of the stages in the log, plus since it was opened here."""
        logged = sum(sum(stages.values()) for stages in self.earlier.values())
        return logged + time.monotonic() - self.opened

    def stage_left(self) -> float | None:
        """Seconds left in the stage: from its own pace, or from the round before."""
        now = self.now
        if not now.stage:
            return None
        since, base = (self.started, 0) if now.attempt == 1 or self.first is None else self.first
        if now.total and now.done > base:
            return (time.monotonic() - since) / (now.done - base) * max(now.total - now.done, 0)
        if now.stage in self.before:
            return max(self.before[now.stage] - self.elapsed(), 0.0)
        return None

    def run_left(self) -> float | None:
        """Seconds left in the run, once a whole round is known; None when nothing is left."""
        if not self.before or self.ended:
            return None
        stage, done = self.now.stage, self.seconds
        waiting = ORDER[ORDER.index(stage) + 1 :] if stage in ORDER else ORDER
        later = [stage for stage in waiting if stage not in done]
        in_round = (self.stage_left() or 0.0) + sum(self.before.get(stage, 0.0) for stage in later)
        return in_round + (self.rounds - self.round) * sum(self.before.values())

    def shares(self) -> dict[str, float]:
        """Each stage's percent of the time so far."""
        spent = dict(self.played)
        if stage := self.now.stage:
            spent[stage] = spent.get(stage, 0.0) + self.elapsed()
        whole = sum(spent.get(stage, 0.0) for stage in STAGES)
        return {stage: 100 * spent.get(stage, 0.0) / whole if whole else 0.0 for stage in STAGES}


def _in_words(done: RoundFigures) -> str:
    """A committed round, for the live page."""
    others = sorted((name, number) for name, number in done.verdicts.items() if name != "kept" and number)
    dropped = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in others)
    return (
        f"Round {done.round}: {done.kept} of {done.candidates} candidates kept"
        f"{f' ({dropped})' if dropped else ''}, F = {done.failures}, ε next = {done.epsilon_next},"
        f" {done.active} Active, {done.mastered} Mastered,"
        f" reactivated: {', '.join(done.reactivated) or 'none'}"
    )
