"""What the ranks of a run do together: play a phase, or answer for a frozen policy."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from diagevo.config.models import HardwareConfig
from diagevo.errors import NodeLostError, ServiceError, StoppedSafely
from diagevo.progress import StopFlag, now_playing
from diagevo.sampling.sampler import Answers, Completion, Prompt, SamplingParams
from diagevo.training.checkpoints import checkpoint_folder
from diagevo.training.phase import OnStep, OnUpdate, Phase
from diagevo.training.ranks import SamplingRequest

_PARTS = 16  # into which a call is cut at least, where it has so many prompts

Send = Callable[[int, tuple[Any, ...]], None]
"""Say something to a rank."""
RunJob = Callable[["SamplingJob", HardwareConfig, StopFlag], object]


class PhaseJob:
    """A phase of training, whose steps rank 0 reports."""

    def __init__(self, phase: Phase, on_step: OnStep, on_update: OnUpdate, stop: StopFlag) -> None:
        self.begins = ("play", phase)
        self._phase, self._stop = phase, stop
        self._on_step, self._on_update = on_step, on_update
        self._finished: int | None = None
        """The newest step that these ranks have finished."""
        self._answers: list[tuple[int, StoppedSafely | None]] = []
        self._notified: set[int] = set()
        """That a stop is overdue."""

    def on_message(self, rank: int, message: tuple[Any, ...]) -> None:
        match message:
            case ("step", step, rollouts, rewards):
                answer = None
                try:
                    self._on_step(step, rollouts, rewards)
                except StoppedSafely as stop:
                    answer = stop  # The ranks save the step before they stop.
                self._answers.append((rank, answer))
            case ("updated", step, metrics):
                self._finished = step
                self._on_update(step, metrics)
            case _:
                raise RuntimeError(f"unexpected message {message[0]} from rank {rank} in a phase")

    def poll(self, send: Send) -> None:
        """Raises StoppedSafely once a stop is overdue, where no finished step is lost by it; else the ranks
        are told to save the last one."""
        for rank, answer in self._answers:
            send(rank, ("answer", answer))
        self._answers.clear()
        if self._stop.overdue:
            if self._finished is None or checkpoint_folder(self._phase.work, self._finished).is_dir():
                self._stop.check()
            for rank in range(self._phase.hardware.processes):
                if rank not in self._notified:
                    self._notified.add(rank)
                    send(rank, ("overdue",))


class SamplingJob:
    """Prompts that go to the rank which has room first."""

    def __init__(
        self,
        asked: SamplingRequest,
        prompts: Sequence[Prompt],
        answers: Answers,
        hardware: HardwareConfig,
        stop: StopFlag,
    ) -> None:
        self.begins = ("sample", asked)
        self._prompts, self._answers, self._stop = prompts, answers, stop
        self._before = _before(prompts, asked.n)
        self._ranks = range(hardware.processes)
        missing = set(answers.missing())
        size = 1
        if not hardware.colocate_vllm:
            size = max(1, min(hardware.rows_at_once // asked.n, len(prompts) // _PARTS))
        # Cut the same whatever is missing and whatever ranks there are.
        parts = (range(start, min(start + size, len(prompts))) for start in range(0, len(prompts), size))
        self._waiting = deque(part for part in parts if missing.intersection(part))
        self._room: Counter[int] = Counter()
        self._under_way: Counter[int] = Counter()
        self._over = False

    def on_message(self, rank: int, message: tuple[Any, ...]) -> None:
        match message:
            case ("ready", parts):
                self._room[rank] = parts
            case ("answered", rows):
                self._under_way[rank] -= 1
                self._answers.add(rows)
            case _:
                raise RuntimeError(f"unexpected message {message[0]} from rank {rank} while sampling")

    def poll(self, send: Send) -> None:
        """Where answers are kept, nothing new is asked once the run is to stop."""
        self._stop.check_overdue()
        under_way = self._under_way.total()
        if self._answers.kept and self._stop and self._waiting:
            if not under_way:
                self._stop.check()
            return
        for rank in self._ranks:
            while self._waiting and self._under_way[rank] < self._room[rank]:
                part = self._waiting.popleft()
                self._under_way[rank] += 1
                send(rank, ("ask", [(p, self._prompts[p], self._before[p]) for p in part]))
        if not self._over and not self._waiting and not under_way and len(self._room) == len(self._ranks):
            self._over = True
            for rank in self._ranks:
                send(rank, ("enough",))


class WorkersSampler:
    """Implements `Resumable`: all ranks of a run answer for one policy."""

    def __init__(
        self,
        run: RunJob,
        policy: Path,
        hardware: HardwareConfig,
        template_kwargs: Mapping[str, Any],
        say: Callable[[str], None],
        stop: StopFlag,
    ) -> None:
        self._run, self._policy, self._hardware = run, policy.resolve(), hardware
        self._template_kwargs, self._say, self._stop = template_kwargs, say, stop

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        params: SamplingParams,
        seed: int,
        answers: Answers | None = None,
    ) -> list[list[Completion]]:
        """Where a rank dies, or is lost with its node, all are started again, and asked for what is missing:
        at most `hardware.restarts` times, and each time after some answers."""
        found = answers or Answers(len(prompts), n)
        asked = SamplingRequest(self._policy, n, params, seed, self._template_kwargs)
        left = self._hardware.restarts
        while found.missing():
            had = len(found.rows)
            try:
                self._run(
                    SamplingJob(asked, prompts, found, self._hardware, self._stop), self._hardware, self._stop
                )
            except ServiceError as error:
                if not left or not (len(found.rows) > had or isinstance(error, NodeLostError)):
                    raise
                left -= 1
                first, *_ = error.message.splitlines()
                self._say(f"{now_playing()}: {first} What it had not answered is asked again")
        return found.groups()

    def close(self) -> None:
        """The ranks are the run's."""


def _before(prompts: Sequence[Prompt], n: int) -> list[int]:
    """For each prompt, samples of the same text that precede its own."""
    seen: Counter[str] = Counter()
    before: list[int] = []
    for text in map(repr, prompts):
        before.append(seen[text])
        seen[text] += n
    return before
