"""The processes of a run that train and sample: one per GPU, or several on the CPU over gloo; and their
joint jobs: running a phase or sampling from a frozen policy.

They are started once and stay: each keeps its vLLM for the whole run, and policies take turns in it. If a
rank dies or hangs, the job fails with its name and all ranks end; the next job starts new ones. FSDP goes
through `accelerate launch` with the configured file. On a Ray cluster (ranks.py) the run's folder is on a
disk that all nodes see.
"""

import queue
import secrets
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from diagevo.config.models import HardwareConfig, SamplingConfig, TrainingConfig
from diagevo.errors import DiagEvoError, NodeLostError, ServiceError, StoppedSafely
from diagevo.progress import StopFlag, now_playing
from diagevo.sampling.sampler import Answers, Completion, Prompt, SamplingParams
from diagevo.sampling.supervised import ending
from diagevo.training.checkpoints import checkpoint_folder
from diagevo.training.phase import OnStep, OnUpdate, Phase, TrainingSummary, no_update
from diagevo.training.ranks import (
    NAME,
    LaunchSpec,
    LocalRanks,
    Rank,
    Ranks,
    RayRanks,
    SamplingRequest,
    log_of,
)

_RESUME = (
    "The last complete checkpoint is kept: continue with diagevo train --resume, where --set may give "
    "another value of hardware.*."
)
_ANSWER = 5.0  # seconds for other ranks to report, once one of them has
_ENDING = 10.0  # seconds for idle ranks to exit by themselves
_PARTS = 16  # minimum parts of a call, if it has that many prompts
_SILENT = 4  # times hardware.rank_timeout without a message; a working rank sends several per step

Send = Callable[[int, tuple[Any, ...]], None]
"""Send a message to a rank."""


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
        """Whether a stop is overdue."""

    def on_message(self, rank: int, message: tuple[Any, ...]) -> None:
        """Take a message of a rank."""
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
        """Called a few times a second, and after each message: `send` the next message. Raises StoppedSafely
        once a stop is overdue, if no finished step would be lost; otherwise the ranks are told to save
        the last one."""
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
    """Sends each prompt to the first rank with room."""

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
        # The same split whatever is missing and however many ranks there are.
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
        """If answers are stored, nothing new is asked once the run is to stop."""
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


def _before(prompts: Sequence[Prompt], n: int) -> list[int]:
    """For each prompt, samples of the same text that precede its own."""
    seen: Counter[str] = Counter()
    before: list[int] = []
    for text in map(repr, prompts):
        before.append(seen[text])
        seen[text] += n
    return before


Job = PhaseJob | SamplingJob
"""A joint job of all ranks."""


class Workers:
    """`hardware.processes` ranks, from the first job until `close`.

    If `hardware` has changed, or one of them has exited, new ones are started.
    """

    def __init__(
        self,
        model: Path,
        sampling: SamplingConfig,
        training: TrainingConfig,
        *,
        logs: Path,
    ) -> None:
        """`model`: the solver that the run starts from. `logs`: folder for what the ranks print."""
        self.logs = logs
        self._model, self._sampling, self._training = model, sampling, training
        self._group: _Group | None = None

    def play(
        self, phase: Phase, on_step: OnStep, stop: StopFlag, on_update: OnUpdate = no_update
    ) -> TrainingSummary:
        """As `grpo.play_phase`. `on_step` is called here, in this process, while rank 0 waits; so is
        `on_update`, for which it does not.

        Once `stop` is overdue the ranks are ended if all finished steps are saved, otherwise told to save
        the last one and exit. Raises a rank's own error if it is a DiagEvoError, ServiceError with
        the rank and its log if it died or hung, NodeLostError if its node is gone.
        """
        return self.run(PhaseJob(phase, on_step, on_update, stop), phase.hardware, stop)[0]

    def run(self, job: Job, hardware: HardwareConfig, stop: StopFlag) -> list[Any]:
        """Run a job on the ranks; returns each result, by rank. They are ended if it fails."""
        if self._group is not None and not self._group.serves(hardware):
            self.close()
        if self._group is None:
            spec = {"model": self._model, "sampling": self._sampling, "training": self._training}
            self._group = _Group(hardware, spec, self.logs, stop)
        try:
            return self._group.run(job)
        except BaseException:
            self._group.end()
            self._group = None
            raise

    def close(self) -> None:
        if self._group is not None:
            self._group.let_go()
            self._group = None


class WorkersSampler:
    """Implements `Resumable`: all ranks of a run sample from one policy."""

    def __init__(
        self,
        workers: Workers,
        policy: Path,
        hardware: HardwareConfig,
        template_kwargs: Mapping[str, Any],
        say: Callable[[str], None],
        stop: StopFlag,
    ) -> None:
        self._workers, self._policy, self._hardware = workers, policy.resolve(), hardware
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
        """If a rank dies, or is lost with its node, all are restarted and asked for what is missing: at most
        `hardware.restarts` times, and only after some answers each time."""
        found = answers or Answers(len(prompts), n)
        asked = SamplingRequest(self._policy, n, params, seed, self._template_kwargs)
        left = self._hardware.restarts
        while found.missing():
            had = len(found.rows)
            try:
                job = SamplingJob(asked, prompts, found, self._hardware, self._stop)
                self._workers.run(job, self._hardware, self._stop)
            except ServiceError as error:
                if not left or not (len(found.rows) > had or isinstance(error, NodeLostError)):
                    raise
                left -= 1
                first, *_ = error.message.splitlines()
                self._say(f"{now_playing()}: {first} What it had not answered is asked again")
        return found.groups()

    def close(self) -> None:
        """The ranks belong to the run."""


class _RankListener:
    """Receives the ranks' messages. Each is read in a separate thread: one that stops within a message, or
    before its first, does not block the others.
    """

    def __init__(self, listener: Listener, key: bytes) -> None:
        self.address = listener.address
        self._listener = listener
        self._key = key
        self._messages: queue.SimpleQueue[tuple[Connection, tuple[Any, ...]]] = queue.SimpleQueue()
        self._readers: list[threading.Thread] = []
        self._over = False
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        self._over = True
        with suppress(OSError):
            Client(self.address).close()  # a thread that accepts does not notice that its socket is closed
        self._acceptor.join(1.0)

    def poll(self, seconds: float) -> tuple[Connection, tuple[Any, ...]] | None:
        """The next message, waiting at most this long."""
        try:
            return self._messages.get(timeout=seconds)
        except queue.Empty:
            return None

    def pending(self) -> bool:
        """Whether messages may still come from those that are connected."""
        return not self._messages.empty() or any(reader.is_alive() for reader in self._readers)

    def _accept(self) -> None:
        with self._listener:
            while True:
                connection = self._listener.accept()
                if self._over:
                    connection.close()
                    return
                self._readers.append(threading.Thread(target=self._read, args=[connection], daemon=True))
                self._readers[-1].start()

    def _read(self, connection: Connection) -> None:
        with connection:
            try:
                deliver_challenge(connection, self._key)
                answer_challenge(connection, self._key)
                while True:
                    self._messages.put((connection, connection.recv()))
            except (AuthenticationError, EOFError, OSError):
                return  # not one of our ranks, or it has ended


class _Group:
    """Ranks that were started together: listens to them and watches their processes."""

    def __init__(self, hardware: HardwareConfig, spec: dict[str, Any], logs: Path, stop: StopFlag) -> None:
        self._hardware = hardware
        self._spec_file = logs.resolve() / NAME
        self._connections: dict[int, Connection] = {}
        self._rank_of: dict[Connection, int] = {}
        self._place: dict[int, str] = {}
        self._errors: dict[int, DiagEvoError | str] = {}
        self._done: dict[int, Any] = {}
        self._job: Job | None = None
        self._heard_at = time.monotonic()
        self._processes: Sequence[Rank] = []
        self._folder = tempfile.TemporaryDirectory(prefix="diagevo-")
        self._placed: Ranks | None = None
        self._listener: _RankListener | None = None
        try:
            self._placed = placed = LocalRanks() if hardware.cluster == "local" else RayRanks(hardware, stop)
            key = secrets.token_bytes(32)
            here = str(Path(self._folder.name) / "ranks")
            address = here if placed.listen_at is None else (placed.listen_at, 0)
            self._listener = _RankListener(Listener(address, backlog=hardware.processes), key)
            launch = LaunchSpec(
                hardware=hardware,
                address=self._listener.address,
                rendezvous=placed.rendezvous,
                key=key.hex(),
                **spec,
            )
            launch.write(self._spec_file)
            self._processes = placed.start(self._spec_file, launch)
        except BaseException:
            self.end()
            raise

    def serves(self, hardware: HardwareConfig) -> bool:
        """Whether these ranks can take more work."""
        try:
            return hardware == self._hardware and all(status is None for status in self._statuses())
        except NodeLostError:
            return False

    def run(self, job: Job) -> list[Any]:
        self._job, self._done, self._heard_at = job, {}, time.monotonic()
        for rank in list(self._connections):
            self._send(rank, job.begins)
        while len(self._done) < self._hardware.processes:
            self._listen(0.2)
            if self._errors:
                self._fail()
            job.poll(self._send)
            if any(status is not None for status in self._statuses()):
                self._listen_for(1.0)  # A dead rank's last messages are still in its pipe.
                if self._errors:
                    self._fail()
                if len(self._done) < self._hardware.processes:
                    self._report_dead(self._statuses())
            if time.monotonic() - self._heard_at > _SILENT * self._hardware.rank_timeout:
                self._report_silent()
        self._job = None
        return [self._done[rank] for rank in sorted(self._done)]

    def let_go(self) -> None:
        """They are idle: let them exit by themselves, then kill them."""
        for rank in list(self._connections):
            self._send(rank, ("end",))
        deadline = time.monotonic() + _ENDING
        with suppress(NodeLostError):
            while any(status is None for status in self._statuses()) and time.monotonic() < deadline:
                time.sleep(0.05)
        self.end()

    def end(self) -> None:
        self._spec_file.unlink(missing_ok=True)
        for process in self._processes:
            process.stop()
        if self._listener is not None:
            self._listener.close()
        if self._placed is not None:
            self._placed.close()
        self._folder.cleanup()

    def _statuses(self) -> list[int | None]:
        return [process.status() for process in self._processes]

    def _send(self, rank: int, message: tuple[Any, ...]) -> None:
        with suppress(OSError):  # The rank is gone: its status tells.
            self._connections[rank].send(message)

    def _listen_for(self, seconds: float) -> None:
        assert self._listener is not None
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self._listener.pending():
            self._listen(min(left, 0.2))

    def _listen(self, seconds: float) -> None:
        assert self._listener is not None
        if (received := self._listener.poll(seconds)) is not None:
            self._take(*received)
            self._heard_at = time.monotonic()  # from now: a step is also worked on here

    def _take(self, connection: Connection, message: tuple[Any, ...]) -> None:
        rank = self._rank_of.get(connection, -1)
        match message:
            case ("hello", rank):
                self._rank_of[connection], self._connections[rank] = rank, connection
                self._place[rank] = "connecting to the other ranks"
                if len(self._connections) == self._hardware.processes:
                    self._spec_file.unlink(missing_ok=True)
                if self._job is not None:
                    self._send(rank, self._job.begins)
            case ("at", text):
                self._place[rank] = text
            case ("done", summary):
                self._done[rank] = summary
            case ("error", error):
                self._errors[rank] = error
            case _ if self._job is not None:
                self._job.on_message(rank, message)

    def _fail(self) -> None:
        """Raise what the ranks reported. A rank that timed out names those that did not answer."""
        self._listen_for(_ANSWER)
        for error in self._errors.values():
            if isinstance(error, DiagEvoError):
                raise error
        statuses = self._statuses()
        if any(status not in (None, 0, 1) for status in statuses):
            self._report_dead(statuses)  # Killed: the others only report that it is gone.
        silent = sorted(set(range(self._hardware.processes)) - set(self._errors))
        rank, text = next((rank, str(error)) for rank, error in self._errors.items())
        if silent and ("Timed out" in text or "timeout" in text.lower()):
            places = "; ".join(f"rank {r} was {self._where(r)}" for r in silent)
            raise ServiceError(
                f"{self._named(silent[0])} did not answer the others in time: {places}. "
                f"Its log: {self._log(silent[0])}",
                hint=f"hardware.rank_timeout is how long ranks wait, and may be longer. {_RESUME}",
            )
        raise ServiceError(
            f"{self._named(rank)} failed: {text} Its log: {self._log(rank)}",
            hint=_RESUME,
        )

    def _report_dead(self, statuses: Sequence[int | None]) -> None:
        # A signal from outside is the cause; an exit status may be its consequence.
        dead = sorted((status, rank) for rank, status in enumerate(statuses) if status is not None)
        status, rank = dead[0]
        # NCCL ends the ranks that wait; the one that hangs runs on.
        others = [r for r in range(len(statuses)) if statuses[r] is None]
        running = "".join(f" Rank {r} is still running, {self._where(r)}." for r in others)
        tail = self._processes[rank].tail()
        raise ServiceError(
            f"{self._named(rank)} {ending(status)} while {self._where(rank)}.{running} "
            f"Its log: {self._log(rank)}; it ends with:\n{tail}",
            hint=_RESUME,
        )

    def _report_silent(self) -> None:
        """Nobody waits for a single rank, nor for one that hangs at the end."""
        running = [rank for rank, status in enumerate(self._statuses()) if status is None]
        places = "; ".join(f"rank {rank} was {self._where(rank)}" for rank in running)
        raise ServiceError(
            f"No training rank has responded for {_SILENT * self._hardware.rank_timeout:g} s: {places}. "
            f"Its log: {self._log(running[0])}",
            hint=f"hardware.rank_timeout is a quarter of that: raise it if a step takes that long. {_RESUME}",
        )

    def _named(self, rank: int) -> str:
        return f"Training rank {rank} of {self._hardware.processes}"

    def _where(self, rank: int) -> str:
        return self._place.get(rank, "starting")

    def _log(self, rank: int) -> Path:
        return log_of(self._spec_file, self._hardware, rank)
