"""Resumable stages: a completed one is read from its files, a running one is voided and repeated."""

import errno
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from diagevo.errors import NodeLostError, OutOfMemoryError, StoreError
from diagevo.memory.events import Artifact, GroupRewards, MeasuredReward, StepTrained
from diagevo.memory.memory import Memory
from diagevo.progress import Observer, StageProgress, StopFlag, playing
from diagevo.sampling.model_folder import sha256_of
from diagevo.training.checkpoints import find
from diagevo.training.measures import finite
from diagevo.training.phase import Rollout

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)


@dataclass(frozen=True)
class Outcome:
    """The result of a stage: its files, the events to append with its completion, a summary for displays."""

    files: tuple[Path, ...] = ()
    record: Callable[[], object] | None = None
    summary: Mapping[str, object] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    """Its seconds, by activity."""
    reward: float | None = None


MEASURED = frozenset(MeasuredReward.__struct_fields__)


class StepRecorder:
    """The steps of a phase as recorded in the log: their rewards, and what the update measured."""

    def __init__(self, memory: Memory, round_: int, stage: str) -> None:
        self._memory, self._round, self._stage = memory, round_, stage
        self._groups: dict[str, list[float]] = {}
        self._measured: dict[str, list[MeasuredReward]] = {}

    def rewarded(self, rollouts: Sequence[Rollout], rewards: Sequence[float]) -> float:
        """Record the rewards of the running step; returns their mean."""
        self._groups, self._measured = {}, {}
        for rollout, reward in zip(rollouts, rewards, strict=True):
            self._groups.setdefault(rollout.row_id, []).append(reward)
            if isinstance(rollout.measure, Mapping) and rollout.measure.keys() == MEASURED:
                self._measured.setdefault(rollout.row_id, []).append(MeasuredReward(**rollout.measure))
        return math.fsum(rewards) / len(rewards)

    def updated(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """An `OnUpdate`."""
        self._memory.step_trained(
            StepTrained(
                stage=self._stage,
                attempt=self._memory.stage(self._stage).attempt,
                step=step,
                groups=[GroupRewards(prompt=row, rewards=found) for row, found in self._groups.items()],
                measured=[one for row in self._groups for one in self._measured.get(row, [])],
                **{name: finite(metrics.get(name)) for name in ("loss", "entropy", "grad_norm", "kl")},
            )
        )

    def reward(self, steps: int) -> float | None:
        """Mean over the completions of all steps, whichever attempt recorded them: a later one repeats those
        that no longer count. None if a step has none, as in a log begun by an older version."""
        recorded = self._memory.log.read(
            self._memory.run_id, types=["StepTrained"], rounds=(self._round, self._round)
        )
        found = {
            event.step: [reward for group in event.groups for reward in group.rewards]
            for each in recorded
            if isinstance(event := each.event, StepTrained) and event.stage == self._stage
        }
        if found.keys() != set(range(1, steps + 1)):
            return None
        every = [reward for rewards in found.values() for reward in rewards]
        return math.fsum(every) / len(every)


def cpu_seconds() -> float:
    """CPU time of this process so far, and of its child processes that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def check_artifact(run: Path, artifact: Artifact, stage: str, number: int, stop: StopFlag) -> None:
    """Raises StoreError if a completed stage's output is gone or has changed."""
    path = run / artifact.path
    if path.exists() and sha256_of(path, stop) == artifact.sha256:
        return
    problem = "has changed" if path.exists() else "is gone"
    anew = f"fork the run: diagevo runs fork {number - 1}" if number > 1 else "start another run"
    raise StoreError(
        f"round {number}: {path}, which the completed stage {stage} left behind, {problem}",
        hint=f"put it back from a backup, or {anew}",
    )


class Stages:
    """Runs the stages of one round, each at most once to its end."""

    def __init__(
        self,
        memory: Memory,
        round_: int,
        folder: Path,
        observer: Observer,
        stop: StopFlag,
        last: str | None = None,
        *,
        restarts: int = 0,
        shrink: Callable[[str, OutOfMemoryError], str],
    ) -> None:
        """`folder`: the run's; artifacts are recorded relative to it. `last`: stop after this stage.
        `restarts`: how often a stage restarts by itself after losing a node.

        `shrink`: reduces the memory use of a stage that ran out of memory, and says how; it raises if that is
        impossible. Seconds between this process's stages are recorded with the following stage.
        """
        self.memory = memory
        self.round = round_
        self.folder = folder
        self.observer = observer
        self.stop = stop
        self.last = last
        self.restarts = restarts
        self.shrink = shrink
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()
        self._scheduling = 0.0

    def scheduled(self, seconds: float) -> None:
        """Time to commit the previous round and open this one; it is recorded with the next stage."""
        self._scheduling += seconds
        self._since = time.monotonic()

    def play(
        self,
        name: str,
        work: Callable[[], Outcome],
        *,
        total: int | None = None,
        checkpoints: Path | None = None,
    ) -> None:
        """Run `work` unless the stage is complete. Its files, events and completion are one transaction.

        `checkpoints`: where an interrupted attempt left them; it resumes from the newest complete one,
        and observations of later steps are voided. Raises StoppedSafely before a stage begins once a stop
        was requested, and StoreError if a completed stage's files are gone or changed, or the disk is full.
        """
        status = self.memory.stage(name)
        # Its files are checked, not its word: a resumed round would go on from weights that somebody
        # replaced.
        if status.status == "completed":
            self._check(name, status.artifacts)
            self.passed(name)
            return
        self.check_stop(f"before the stage {name} of round {self.round}")
        # A killed process leaves its stage running: observations past the checkpoint are void.
        if status.status == "running":
            self._abandon(name, checkpoints)
        started = time.monotonic()
        before = {"orchestration": started - self._since, "scheduling": self._scheduling}
        outcome, started, cpu = self._outlasted(name, work, total, checkpoints)
        seconds = time.monotonic() - started
        before["cpu"] = cpu_seconds() - cpu
        artifacts = [
            Artifact(path=file.relative_to(self.folder).as_posix(), sha256=sha256_of(file, self.stop))
            for file in outcome.files
        ]
        # One transaction: a stage completes with its events and files, or runs again.
        with self.memory.atomic():
            if outcome.record is not None:
                outcome.record()
            self.memory.complete_stage(
                name,
                artifacts,
                seconds=round(seconds, 3),
                parts={part: round(spent, 3) for part, spent in {**before, **outcome.parts}.items()},
                reward=outcome.reward,
            )
        self._since, self._scheduling = started + seconds, 0.0
        self.seconds[name] = seconds
        self.observer.stage_finished(self.round, name, seconds, outcome.summary)
        self.passed(name)

    def passed(self, name: str) -> None:
        """A stage is done, or not part of this run: stop if it was the requested last one."""
        if name == self.last:
            self.stop.set()

    def _outlasted(
        self, name: str, work: Callable[[], Outcome], total: int | None, checkpoints: Path | None
    ) -> tuple[Outcome, float, float]:
        """The outcome, and when its attempt began: by the clock and in CPU time. After a lost node, up to
        `restarts` more attempts begin; after running out of memory, until a stage can use no less."""
        left = self.restarts
        while True:
            self.observer.stage_started(self.round, name, self.memory.start_stage(name), total)
            started, cpu = time.monotonic(), cpu_seconds()
            try:
                return self._done(name, work), started, cpu
            except NodeLostError as error:
                if not left:
                    raise
                left -= 1
                reason = error.message
            except OutOfMemoryError as error:
                reason = f"{error.message} {self.shrink(name, error)}"
            # After a stop request there is no further attempt.
            self.check_stop(f"in the stage {name} of round {self.round}: {reason}")
            self.observer.message(f"round {self.round}: {reason}")
            self._abandon(name, checkpoints, reason=reason)

    def _abandon(self, name: str, checkpoints: Path | None, reason: str | None = None) -> None:
        """Void what the interrupted attempt observed past its newest complete checkpoint, with a message."""
        ran = self._ran(name, checkpoints)
        if checkpoints is None:
            self.memory.abandon_stage(name, after_step=0, seconds=ran, reason=reason)
            self.observer.message(f"round {self.round}: {name} was interrupted and is repeated")
            return
        found = find(checkpoints, self.stop)
        self.memory.abandon_stage(name, after_step=found.step, seconds=ran, reason=reason)
        for fault in found.broken:
            self.observer.message(f"round {self.round}: skipped: {checkpoints}/{fault}")
        where = f"resumes after step {found.step}" if found.step else "begins again"
        self.observer.message(f"round {self.round}: {name} was interrupted and {where}")

    def _ran(self, name: str, checkpoints: Path | None) -> float:
        """Seconds from the start of an interrupted attempt to its last trace: an event, or a checkpoint
        file."""
        log, run = self.memory.log, self.memory.run_id
        [started] = log.read(
            run, types=["StageStarted"], rounds=(self.round, self.round), newest_first=True, limit=1
        )
        [last] = log.read(run, newest_first=True, limit=1)
        files = [] if checkpoints is None else checkpoints.rglob("*")
        ends = [datetime.fromisoformat(last.recorded_at).timestamp(), *(f.lstat().st_mtime for f in files)]
        began = datetime.fromisoformat(started.recorded_at).timestamp()
        return round(max(0.0, max(ends) - began), 3)

    def _done(self, name: str, work: Callable[[], Outcome]) -> Outcome:
        try:
            with playing(f"{self.memory.run_id}, round {self.round}: {name}"):
                return work()
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            raise StoreError(
                f"round {self.round}: the stage {name} cannot write {error.filename or self.folder}: "
                f"{error.strerror}",
                hint="free some space or check the permissions, then: diagevo train --resume",
            ) from error

    def progress(self, name: str, progress: StageProgress) -> None:
        self.observer.stage_progress(self.round, name, progress)

    def check_stop(self, where: str) -> None:
        """The safe points of a run."""
        self.stop.check(where)

    def _check(self, name: str, artifacts: tuple[Artifact, ...]) -> None:
        for artifact in artifacts:
            check_artifact(self.folder, artifact, name, self.round, self.stop)
