"""A run under way as a file beside it, for whoever looks from another process: `diagevo view`."""

import os
import time
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from diagevo.private import private
from diagevo.progress import Observer, RoundFigures, StageProgress
from diagevo.text.escaping import json_text
from diagevo.text.redaction import masked

PROGRESS = "progress.json"
SECONDS = 0.5
"""Between two writes for the replies of a stage; a training step is written at once."""
TOLD = 50
"""The last messages that are kept."""


POINTS = 200
"""Rewards of a stage at most: of more steps every second one, and so on."""


def _begun(stage: str, attempt: int, total: int | None) -> dict[str, Any]:
    now = {"stage": stage, "attempt": attempt, "done": 0, "total": total, "detail": ""}
    return {**now, "rewards": [], "seconds": None}


class ProgressFile(Observer):
    """An observer that writes what it is told to a file, whole and at once, and passes it on."""

    def __init__(self, observer: Observer, file: Path) -> None:
        self.observer, self.file = observer, file
        self._now: dict[str, Any] = {
            "round": 0,
            "rounds": 0,
            "epsilon": None,
            "failures": None,
            "stages": [],
            "messages": [],
            "last": None,
            "ended": False,
        }
        self._before: Mapping[int, Mapping[str, float]] = {}
        self._written = 0.0

    def resumed(self, seconds: Mapping[int, Mapping[str, float]], newest_cause: str | None) -> None:
        self._before = seconds
        self.observer.resumed(seconds, newest_cause)

    def round_started(self, round: int, rounds: int, epsilon: Fraction, failures: int | None) -> None:
        self._now |= {"round": round, "rounds": rounds, "epsilon": str(epsilon), "failures": failures}
        done = self._before.get(round, {})
        stages = [_begun(stage, 1, None) | {"seconds": spent} for stage, spent in done.items()]
        self._now |= {"stages": stages, "ended": False}
        self._write()
        self.observer.round_started(round, rounds, epsilon, failures)

    def stage_started(self, round: int, stage: str, attempt: int, total: int | None) -> None:
        self._now["stages"].append(_begun(stage, attempt, total))
        self._write()
        self.observer.stage_started(round, stage, attempt, total)

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        now = self._stage(stage)
        now.update(done=progress.done, total=progress.total, detail=progress.detail)
        if progress.reward is not None:
            now["rewards"].append((progress.done, float(f"{progress.reward:.4g}")))
            if len(now["rewards"]) > POINTS:
                now["rewards"] = now["rewards"][::-2][::-1]  # the last one stays
        if progress.reward is not None or time.monotonic() - self._written > SECONDS:
            self._write()
        self.observer.stage_progress(round, stage, progress)

    def stage_finished(self, round: int, stage: str, seconds: float, summary: Mapping[str, object]) -> None:
        said = ", ".join(f"{name} {value}" for name, value in summary.items())
        self._stage(stage).update(seconds=seconds, detail=said)
        self._write()
        self.observer.stage_finished(round, stage, seconds, summary)

    def round_finished(self, round: int, figures: RoundFigures) -> None:
        dropped = ", ".join(
            f"{name.replace('_', ' ')} {number}"
            for name, number in sorted(figures.verdicts.items())
            if name != "kept" and number
        )
        kept = f"{figures.kept} of {figures.candidates} candidates kept"
        self._now["last"] = (
            f"Round {figures.round}: {kept}{f' ({dropped})' if dropped else ''}, F = {figures.failures},"
            f" ε next = {figures.epsilon_next}, {figures.active} Active, {figures.mastered} Mastered,"
            f" reactivated: {', '.join(figures.reactivated) or 'none'}"
        )
        self._now["ended"] = True
        self._write()
        self.observer.round_finished(round, figures)

    def message(self, text: str) -> None:
        self._now["messages"] = [*self._now["messages"], masked(text)][-TOLD:]
        self._write()
        self.observer.message(text)

    def _stage(self, stage: str) -> dict[str, Any]:
        """The attempt under way; a stage that was told of before this process began has a row of its own."""
        found = next((one for one in reversed(self._now["stages"]) if one["stage"] == stage), None)
        if found is None:
            found = _begun(stage, 1, None)
            self._now["stages"].append(found)
        return found

    def _write(self) -> None:
        """A reader finds the old file or the new one. A disk that is full costs the picture, not the run."""
        beside = self.file.with_suffix(".json.new")
        try:
            with open(beside, "w", encoding="utf-8", opener=private) as file:
                file.write(json_text(self._now))
            os.replace(beside, self.file)
        except OSError:
            return
        self._written = time.monotonic()
