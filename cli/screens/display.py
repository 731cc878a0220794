"""What `train` shows while it runs: a live view on a terminal, plain lines, JSON lines, or nothing.

All of them observe the run, and each keeps what is known so far (`diagevo.progress.RunProgress`).
"""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from diagevo.progress import (
    ORDER,
    PAPER_SHARES,
    STAGES,
    VALIDATION,
    RoundFigures,
    RunProgress,
    StageAttempt,
    StageProgress,
)
from diagevo.text.escaping import json_text
from diagevo.text.lines import listed
from diagevo.text.numbers import fraction
from diagevo.text.redaction import masked

from ..call import CommandContext
from ..render import console as render
from ..render.layout import folded
from .board import clock, how_far, named, note, round_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

Kind = Literal["live", "plain", "json", "none"]
BAR = 10
"""Cells of a stage's bar."""
WIDE = 100
"""Columns from which a stage's figures fit beside it."""
HIGH = 24
"""Rows from which the view has spacing and shows the last round in full."""


class Board(RunProgress):
    """Shows nothing."""

    def showing(self) -> AbstractContextManager[Any]:
        """The context in which the display is active."""
        return nullcontext()


class _Lines(Board, ABC):
    """A line when a round begins, when a stage or a round ends, and for each message."""

    def __init__(self, call: CommandContext, run: str) -> None:
        super().__init__(run)
        self.call = call

    def round_started(self, round: int, rounds: int, epsilon: Fraction, failures: int | None) -> None:
        super().round_started(round, rounds, epsilon, failures)
        before = "" if failures is None else f", F {failures}"
        self._say(f"round {round} of {rounds}: ε {fraction(epsilon)}{before}")

    def stage_finished(self, round: int, stage: str, seconds: float, summary: Mapping[str, object]) -> None:
        super().stage_finished(round, stage, seconds, summary)
        noted = note(summary)
        self._say(f"{named(round, stage)}: done in {seconds:.1f} s{': ' + noted if noted else ''}")

    def round_finished(self, round: int, figures: RoundFigures) -> None:
        super().round_finished(round, figures)
        self._say(f"round {round} committed: {round_line(figures)}")

    def message(self, text: str) -> None:
        super().message(text)
        self._say(text)

    @abstractmethod
    def _say(self, text: str) -> None: ...


class PlainDisplay(_Lines):
    """Lines on stderr, for logs and batch systems, with the time of day and a stage's progress."""

    pause = 5.0
    """Minimum seconds between two lines of a stage's progress."""
    silence = 8.0
    """Maximum seconds without a line."""

    def __init__(self, call: CommandContext, run: str) -> None:
        super().__init__(call, run)
        self._spoke = time.monotonic()

    def showing(self) -> AbstractContextManager[None]:
        return render.repeating(self.silence / 8, lambda: self._unless_within(self.silence))

    def stage_started(self, round: int, stage: str, attempt: int, total: int | None) -> None:
        super().stage_started(round, stage, attempt, total)
        again = f" (attempt {attempt})" if attempt > 1 else ""
        self._say(f"{named(round, stage)}: started{again}")

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        super().stage_progress(round, stage, progress)
        self._unless_within(self.pause)

    def _unless_within(self, seconds: float) -> None:
        """A progress line, unless one came within this many seconds."""
        if time.monotonic() - self._spoke < seconds:
            return
        if stage := self.now.stage:
            self._say(f"{named(self.round, stage)}: {how_far(self)}")
        else:
            self._say(f"{_between(self)}, {clock(self.whole())} so far")

    def _say(self, text: str) -> None:
        self._spoke = time.monotonic()
        render.say(self.call, f"{time.strftime('%H:%M:%S')} {text}")


class JsonDisplay(Board):
    """One JSON object per line on stdout: `event` names the observer's method, the rest are its arguments."""

    def on_event(self, event: str, **what: object) -> None:
        sys.stdout.write(json_text({"event": event, "run": self.run, **render.plain(what)}) + "\n")
        sys.stdout.flush()


class LiveDisplay(_Lines):
    """A view that is redrawn in place on a terminal, below one line for each completed stage."""

    def __init__(self, call: CommandContext, run: str) -> None:
        super().__init__(call, run)
        self.console: Console = render.stderr(call)

    def showing(self) -> AbstractContextManager[Any]:
        from rich.live import Live

        return Live(
            console=self.console,
            get_renderable=self.view,
            refresh_per_second=2,
            redirect_stdout=True,
            redirect_stderr=True,
            transient=True,
        )

    def view(self) -> "RenderableType":
        """At most 13 rows on a low terminal, each cut at its width."""
        from rich.console import Group
        from rich.text import Text

        board, columns = self, self.console.width
        lines = [Text()] if self.console.height >= HIGH else []
        lines.append(self._cut(Text(_headline(board), style="bold")))
        if figures := _figures(board):
            lines.append(self._cut(Text(figures)))
        lines += self._stages(columns)
        if columns < WIDE and board.now.detail:
            lines.append(self._cut(f"{board.now.stage}: {board.now.detail}", "dim"))
        if board.newest_cause:
            lines.append(self._cut(f"newest cause: {board.newest_cause}", rows=2))
        if board.history and self.console.height >= HIGH:
            last = board.history[-1]
            lines.append(self._cut(f"round {last.round}: {round_line(last)}", "dim", rows=4))
        return Group(*lines)

    def _stages(self, columns: int) -> "list[Text]":
        from rich.text import Text

        board, now, shares = self, self.now, self.shares()
        lines = [Text(f"{'':<35} {'time':>7} {'share':>6} {'paper':>6}", style="dim")]
        for stage in ORDER:
            here, spent = stage == now.stage, board.seconds.get(stage)
            if stage == VALIDATION and not here and spent is None and VALIDATION not in board.played:
                continue  # a run without one, as far as is known
            of = f"{now.done:,}/{now.total:,}" if here and now.total else "done" * (spent is not None)
            share = f"{shares[stage]:.1f}%" if stage in STAGES else ""
            paper = f"{PAPER_SHARES[stage]:.1f}%" if stage in STAGES else ""
            taken = clock(board.elapsed()) if here else clock(spent)
            bar = _bar(now) if here else " " * BAR
            row = Text(f"{stage:<11} ", style="bold cyan" if here else "")
            row.append(f"{bar} {of:>12} {taken:>7} ")
            row.append(f"{share:>6} ").append(f"{paper:>6}", style="dim")
            if columns >= WIDE:
                row.append(f"  {now.detail if here else note(board.notes.get(stage, {}))}")
            lines.append(self._cut(row))
        return lines

    def _cut(self, text: "Text | str", style: str = "", rows: int = 1) -> "Text":
        """Cut to this many rows of the terminal, without splitting words."""
        from rich.text import Text

        columns = self.console.width
        if not isinstance(text, str):
            row = Text(render.visible(text.plain, one_line=True), spans=text.spans, style=text.style)
            row.truncate(columns, overflow="ellipsis")
            return row
        folds = folded(render.visible(text, one_line=True), columns).split("\n")
        shown = folds[:rows]
        if len(folds) > rows:
            shown[-1] = shown[-1][: columns - 2] + " …"
        return Text("\n".join(shown), style=style)

    def _say(self, text: str) -> None:
        from rich.text import Text

        shown = render.visible(masked(text))
        self.console.print(Text(folded(f"{time.strftime('%H:%M:%S')} {shown}", self.console.width)))


def _bar(now: StageAttempt) -> str:
    if not now.total:
        return " " * BAR
    filled = min(BAR, BAR * now.done // now.total)
    return "━" * filled + "╌" * (BAR - filled)


def _between(board: Board) -> str:
    if not board.rounds:
        return f"{board.run}: loading"
    resuming = not board.notes and board.round in board.earlier
    doing = "reading back completed stages" if resuming else "between its stages"
    return f"{board.run}: round {board.round}, {doing}"


def _headline(board: Board) -> str:
    where = f"round {board.round} of {board.rounds}" if board.rounds else "loading"
    now = board.now
    if now.stage and not board.rounds:
        where = f"measuring {f'round {board.round}' if board.round else 'the base model'}"
    if now.stage and now.attempt > 1:
        where += f", {now.stage} again (attempt {now.attempt})"
    parts = [board.run, where, f"{clock(board.whole())} so far"]
    left = board.run_left() if board.rounds else board.stage_left()
    if left is not None:
        parts.append(f"{clock(left)} left")
    return " · ".join(parts)


def _figures(board: Board) -> str:
    """ε and F of the round, and what the memory has held since the last commit."""
    parts = [f"ε {fraction(board.epsilon)}"] if board.epsilon is not None else []
    parts += [f"F {board.failures}"] if board.failures is not None else []
    if board.history:
        last = board.history[-1]
        parts.append(f"z {fraction(last.z)}")
        parts.append(f"{last.active} Active, {last.mastered} Mastered, {last.nodes} nodes")
        if last.reactivated:
            parts.append(f"reactivated {listed(last.reactivated, 6)}")
    return " · ".join(parts)


def display_for(kind: Kind | None, call: CommandContext, run: str) -> Board:
    """The requested display; by default live on a terminal and plain elsewhere."""
    if kind is None:
        kind = "json" if call.json else "none" if call.quiet else "live" if sys.stderr.isatty() else "plain"
    match kind:
        case "live":
            return LiveDisplay(call, run)
        case "plain":
            return PlainDisplay(call, run)
        case "json":
            return JsonDisplay(run)
        case "none":
            return Board(run)
