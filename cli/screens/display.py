"""What `train` shows while it runs: a live view on a terminal, plain lines, JSON lines, or nothing.

All of them are observers of the run (`diagevo.progress`) and read one `Board`: what is known so far.
"""

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from diagevo.progress import PAPER_SHARES, STAGES, RoundSummary, StageProgress, Unobserved
from diagevo.text.escaping import json_text
from diagevo.text.numbers import fraction, number

from ..call import Call
from ..render import console as render

if TYPE_CHECKING:
    from rich.console import RenderableType

Kind = Literal["live", "plain", "json", "none"]
SHOWN_MESSAGES = 4
REASONS = ("invalid", "no_label", "too_easy", "too_hard", "contested")


@dataclass
class Board:
    """Everything an observer was told, kept for showing."""

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
    started: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    """Stages of this round that are complete."""
    before: dict[str, float] = field(default_factory=dict)
    """Stages of the last round that was played whole here: what the time left is estimated from."""
    played: dict[str, float] = field(default_factory=dict)
    """Stages of all rounds played here."""
    notes: dict[str, Mapping[str, object]] = field(default_factory=dict)
    history: list[RoundSummary] = field(default_factory=list)

    def elapsed(self) -> float:
        return time.monotonic() - self.started if self.stage else 0.0

    def stage_left(self) -> float | None:
        """Seconds left in the stage: from its own pace, else from the round before."""
        if not self.stage:
            return None
        if self.total and self.done:
            return self.elapsed() / self.done * max(self.total - self.done, 0)
        if self.stage in self.before:
            return max(self.before[self.stage] - self.elapsed(), 0.0)
        return None

    def run_left(self) -> float | None:
        """Seconds left in the run, once a whole round is known."""
        if not self.before:
            return None
        later = STAGES[STAGES.index(self.stage) + 1 :] if self.stage in STAGES else STAGES
        in_round = (self.stage_left() or 0.0) + sum(self.before.get(stage, 0.0) for stage in later)
        return in_round + (self.rounds - self.round) * sum(self.before.values())

    def shares(self) -> dict[str, float]:
        """Each stage's percent of the time so far."""
        spent = dict(self.played)
        if self.stage:
            spent[self.stage] = spent.get(self.stage, 0.0) + self.elapsed()
        whole = sum(spent.values())
        return {stage: 100 * spent.get(stage, 0.0) / whole if whole else 0.0 for stage in STAGES}


def clock(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def note(summary: Mapping[str, object]) -> str:
    """A stage's summary in one line: "kept 210, too_easy 130, reward -0.031"."""
    parts: list[str] = []
    for key, value in summary.items():
        if isinstance(value, Mapping):
            parts += [note({str(k): v}) for k, v in value.items()]
        elif isinstance(value, float | Fraction):
            parts.append(f"{key} {number(value)}")
        elif value is not None:
            parts.append(f"{key} {value}")
    return ", ".join(parts)


def invalid(reasons: Mapping[str, int]) -> str:
    """Why candidates were invalid: "66 held out, 21 outside world"."""
    return ", ".join(
        f"{n} {why.replace('_', ' ')}" for why, n in sorted(reasons.items(), key=lambda r: -r[1])
    )


def round_line(done: RoundSummary) -> str:
    """A committed round in one line."""
    kept = done.verdicts.get("kept", 0)
    dropped = [f"{n} {verdict}" for verdict in REASONS if (n := done.verdicts.get(verdict, 0))]
    if done.invalid:
        dropped[0] += f" ({invalid(done.invalid)})"
    parts = [f"kept {kept}/{done.candidates}" + (f" (dropped: {', '.join(dropped)})" if dropped else "")]
    if done.label_truth is not None:
        parts.append(f"labels true {done.label_truth:.3f}")
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
    if done.reward is not None:
        parts.append(f"reward {done.reward:.3f}")
    parts += [
        f"F {done.failures}",
        f"z {fraction(done.z)}",
        f"ε next {fraction(done.epsilon_next)}",
        f"Active {done.active}, Mastered {done.mastered}, nodes {done.nodes}",
    ]
    if done.promoted:
        parts.append(f"promoted {len(done.promoted)}")
    if done.reactivated:
        parts.append(f"reactivated {', '.join(done.reactivated[:6])}")
    return " · ".join(parts)


class _Boarded(Unobserved):
    """Keeps the board; what is shown is the subclasses'."""

    def __init__(self, call: Call, run: str) -> None:
        self.call = call
        self.board = Board(run)

    def showing(self) -> AbstractContextManager[Any]:
        """The context in which the display is on."""
        return nullcontext()

    def round_started(self, round: int, rounds: int, epsilon: Fraction, failures: int | None) -> None:
        board = self.board
        board.round, board.rounds, board.epsilon, board.failures = round, rounds, epsilon, failures
        board.seconds, board.notes, board.stage = {}, {}, ""

    def stage_started(self, round: int, stage: str, attempt: int, total: int | None) -> None:
        board = self.board
        board.stage, board.attempt, board.total, board.done, board.detail = stage, attempt, total, 0, ""
        board.started = time.monotonic()

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        self.board.done, self.board.detail = progress.done, progress.detail or self.board.detail
        self.board.total = progress.total if progress.total is not None else self.board.total

    def stage_finished(self, round: int, stage: str, seconds: float, summary: Mapping[str, object]) -> None:
        self.board.seconds[stage] = seconds
        self.board.played[stage] = self.board.played.get(stage, 0.0) + seconds
        self.board.notes[stage] = summary
        self.board.stage = ""

    def round_finished(self, round: int, summary: RoundSummary) -> None:
        self.board.before = dict(self.board.seconds) if len(self.board.seconds) == len(STAGES) else {}
        self.board.history.append(summary)


class PlainDisplay(_Boarded):
    """Lines on stderr, for logs and batch systems; of a stage's progress one in `pause` seconds at most."""

    pause = 2.0
    _spoke = 0.0

    def round_started(self, round: int, rounds: int, epsilon: Fraction, failures: int | None) -> None:
        super().round_started(round, rounds, epsilon, failures)
        before = "" if failures is None else f", F {failures}"
        self._say(f"round {round} of {rounds}: ε {fraction(epsilon)}{before}")

    def stage_started(self, round: int, stage: str, attempt: int, total: int | None) -> None:
        super().stage_started(round, stage, attempt, total)
        again = f" (attempt {attempt})" if attempt > 1 else ""
        self._say(f"round {round} {stage}: started{again}")

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        super().stage_progress(round, stage, progress)
        if time.monotonic() - self._spoke >= self.pause:
            of = f"/{progress.total}" if progress.total is not None else ""
            detail = f", {progress.detail}" if progress.detail else ""
            left = self.board.stage_left()
            tail = f", {clock(left)} left" if left else ""
            self._say(f"round {round} {stage}: {progress.done}{of}{detail}{tail}")

    def stage_finished(self, round: int, stage: str, seconds: float, summary: Mapping[str, object]) -> None:
        super().stage_finished(round, stage, seconds, summary)
        told = note(summary)
        self._say(f"round {round} {stage}: done in {seconds:.1f} s{': ' + told if told else ''}")

    def round_finished(self, round: int, summary: RoundSummary) -> None:
        super().round_finished(round, summary)
        self._say(f"round {round} committed: {round_line(summary)}")

    def message(self, text: str) -> None:
        self._say(text)

    def _say(self, text: str) -> None:
        self._spoke = time.monotonic()
        render.say(self.call, f"{time.strftime('%H:%M:%S')} {text}")


class JsonDisplay(_Boarded):
    """One JSON object a line on stdout: `event` names the observer's method, the rest are its arguments."""

    def round_started(self, round: int, rounds: int, epsilon: Fraction, failures: int | None) -> None:
        super().round_started(round, rounds, epsilon, failures)
        self._emit("round_started", round=round, rounds=rounds, epsilon=epsilon, failures=failures)

    def stage_started(self, round: int, stage: str, attempt: int, total: int | None) -> None:
        super().stage_started(round, stage, attempt, total)
        self._emit("stage_started", round=round, stage=stage, attempt=attempt, total=total)

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        super().stage_progress(round, stage, progress)
        told = {"done": progress.done, "total": progress.total, "detail": progress.detail}
        self._emit("stage_progress", round=round, stage=stage, **told)

    def stage_finished(self, round: int, stage: str, seconds: float, summary: Mapping[str, object]) -> None:
        super().stage_finished(round, stage, seconds, summary)
        self._emit("stage_finished", round=round, stage=stage, seconds=seconds, summary=summary)

    def round_finished(self, round: int, summary: RoundSummary) -> None:
        super().round_finished(round, summary)
        self._emit("round_finished", round=round, summary=summary)

    def message(self, text: str) -> None:
        self._emit("message", text=text)

    def _emit(self, event: str, **fields: Any) -> None:
        line = {"event": event, "run": self.board.run, **render.plain(fields)}
        sys.stdout.write(json_text(line) + "\n")
        sys.stdout.flush()


class LiveDisplay(_Boarded):
    """A view that is redrawn in place, on a terminal."""

    def __init__(self, call: Call, run: str) -> None:
        super().__init__(call, run)
        self.messages: list[str] = []

    def showing(self) -> AbstractContextManager[Any]:
        from rich.live import Live

        return Live(
            console=render.stderr(self.call),
            get_renderable=self.view,
            refresh_per_second=2,
            redirect_stdout=True,
            redirect_stderr=True,
        )

    def message(self, text: str) -> None:
        self.messages = [*self.messages, text][-SHOWN_MESSAGES:]

    def view(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        board = self.board
        lines: list[RenderableType] = [Text(_headline(board), style="bold"), self._stages()]
        if board.history:
            lines.append(self._rounds())
        lines += [Text(render.visible(text, one_line=True), style="dim") for text in self.messages]
        return Group(*lines)

    def _stages(self) -> "RenderableType":
        from rich import box
        from rich.table import Table
        from rich.text import Text

        board, shares = self.board, self.board.shares()
        table = Table(box=box.SIMPLE, pad_edge=False)
        table.add_column("stage")
        table.add_column("")
        table.add_column("time", justify="right")
        table.add_column("share", justify="right")
        table.add_column("paper", justify="right", style="dim")
        table.add_column("", overflow="fold")
        for stage in STAGES:
            here = stage == board.stage
            done = board.seconds.get(stage)
            of = f"{board.done}/{board.total}" if here and board.total else ""
            text = board.detail if here else note(board.notes.get(stage, {}))
            table.add_row(
                Text(stage, style="bold cyan" if here else ""),
                of if here else ("done" if done is not None else ""),
                clock(board.elapsed() if here else done),
                f"{shares[stage]:.1f}%",
                f"{PAPER_SHARES[stage]:.1f}%",
                Text(render.visible(text, one_line=True)),
            )
        return table

    def _rounds(self) -> "RenderableType":
        from rich.text import Text

        shown = self.board.history[-5:]
        text = "\n".join(f"round {done.round}: {round_line(done)}" for done in shown)
        return Text(render.visible(text))


def _headline(board: Board) -> str:
    if not board.round:
        return f"{board.run} · starting"
    parts = [f"{board.run} · round {board.round} of {board.rounds}"]
    if board.stage:
        again = f" (attempt {board.attempt})" if board.attempt > 1 else ""
        parts.append(f"{board.stage}{again}, {clock(board.stage_left())} left")
    parts.append(f"ε {fraction(board.epsilon)}")
    if board.failures is not None:
        parts.append(f"F {board.failures}")
    if (left := board.run_left()) is not None:
        parts.append(f"run: {clock(left)} left")
    return " · ".join(parts)


class NoDisplay(_Boarded):
    """Shows nothing."""


def display_for(kind: Kind | None, call: Call, run: str) -> _Boarded:
    """The display that was asked for; by default live on a terminal and plain elsewhere."""
    if kind is None:
        kind = "json" if call.json else "none" if call.quiet else "live" if sys.stderr.isatty() else "plain"
    made = {"live": LiveDisplay, "plain": PlainDisplay, "json": JsonDisplay, "none": NoDisplay}[kind]
    return made(call, run)
