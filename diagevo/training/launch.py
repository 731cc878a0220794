"""A phase in processes of its own: one a GPU, or several on the CPU over gloo; watched until all have ended.

Memory on a GPU is given back because the processes end. A rank that dies or hangs ends the phase with its
name. FSDP and DeepSpeed go through `accelerate launch` with the configured file. On a Ray cluster
(ray_ranks.py) the run's folder is on a disk that all nodes see.
"""

import queue
import secrets
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, Self

from diagevo.config.models import HardwareConfig
from diagevo.errors import DiagEvoError, ServiceError, StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling.supervised import ending
from diagevo.training.checkpoints import checkpoint_folder
from diagevo.training.launch_spec import NAME, LaunchSpec
from diagevo.training.phase import OnStep, Phase, TrainingSummary
from diagevo.training.ranks import LocalRanks, Rank, Ranks, log_of

_RESUME = (
    "The last complete checkpoint is kept: continue with diagevo train --resume, where --set may give "
    "another value of hardware.*."
)
_ANSWER = 5.0  # seconds that ranks get to report too, once one of them has
_SILENT = 4  # times hardware.rank_timeout without a word of any rank; at work each says several a step


def launch_phase(phase: Phase, on_step: OnStep, stop: StopFlag) -> TrainingSummary:
    """As `grpo.play_phase`, in `hardware.processes` ranks whose output goes to the phase's logs.

    `on_step` is called here, in this process, while rank 0 waits. Once `stop` is overdue the ranks are ended
    where each step that they finished is saved, else told to save the last one and to end. Raises what a rank
    raised where that is an error of diagevo's, ServiceError with the rank and its log where it died or hung,
    NodeLostError where its node is gone.
    """
    hardware, spec_file, key = phase.hardware, phase.logs / NAME, secrets.token_bytes(32)
    with tempfile.TemporaryDirectory(prefix="diagevo-") as folder, closing(_ranks(hardware, stop)) as placed:
        address = str(Path(folder) / "ranks") if placed.listen_at is None else (placed.listen_at, 0)
        with _Ear(Listener(address, backlog=hardware.processes), key) as ear:
            spec = LaunchSpec(phase, ear.address, placed.rendezvous, key.hex())
            spec.write(spec_file)
            ranks = placed.start(spec_file, spec)
            try:
                return _Supervision(
                    ear=ear,
                    processes=ranks,
                    spec_file=spec_file,
                    phase=phase,
                    on_step=on_step,
                    stop=stop,
                ).run()
            finally:
                spec_file.unlink(missing_ok=True)
                for rank in ranks:
                    rank.stop()


def _ranks(hardware: HardwareConfig, stop: StopFlag) -> Ranks:
    if hardware.cluster == "local":
        return LocalRanks()
    from diagevo.training.ray_ranks import RayRanks

    return RayRanks(hardware, stop)


class _Ear:
    """What the ranks send. Each is read in a thread of its own: one that stops in the middle of a word, or
    before its first, keeps nobody from hearing the others.
    """

    def __init__(self, listener: Listener, key: bytes) -> None:
        self.address = listener.address
        self._listener = listener
        self._key = key
        self._heard: queue.SimpleQueue[tuple[Connection, tuple[Any, ...]]] = queue.SimpleQueue()
        self._readers: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._over = False

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        with suppress(OSError):
            Client(self.address).close()  # a thread that accepts does not notice that its socket is closed
        self._acceptor.join(1.0)

    def hear(self, seconds: float) -> tuple[Connection, tuple[Any, ...]] | None:
        """The next message, waiting for it so long at most."""
        try:
            return self._heard.get(timeout=seconds)
        except queue.Empty:
            return None

    def open(self) -> bool:
        """Whether something may still be heard of those that are connected."""
        return not self._heard.empty() or any(reader.is_alive() for reader in self._readers)

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
                    self._heard.put((connection, connection.recv()))
            except (AuthenticationError, EOFError, OSError):
                return  # not one of our ranks, or it has ended


@dataclass
class _Supervision:
    """Listens to the ranks and watches their processes until the phase is done or one of them fails."""

    ear: _Ear
    processes: Sequence[Rank]
    spec_file: Path
    phase: Phase
    on_step: OnStep
    stop: StopFlag
    finished: int | None = None
    """The newest step that these ranks have finished."""
    told: set[Connection] = field(default_factory=set)
    """That a stop is overdue."""
    rank_of: dict[Connection, int] = field(default_factory=dict)
    place: dict[int, str] = field(default_factory=dict)
    errors: dict[int, DiagEvoError | str] = field(default_factory=dict)
    summary: TrainingSummary | None = None
    heard_at: float = field(default_factory=time.monotonic)

    def run(self) -> TrainingSummary:
        while True:
            self._listen(0.2)
            if self.stop.overdue:
                self._break_off()
            if self.errors:
                self._fail()
            statuses = [process.status() for process in self.processes]
            if any(status not in (None, 0) for status in statuses):
                self._listen_for(1.0)  # What a dead rank still had to say is in its pipe.
                if self.errors:
                    self._fail()
                self._report_dead([process.status() for process in self.processes])
            if all(status == 0 for status in statuses):
                self._listen_for(1.0)
                if self.summary is None:
                    raise ServiceError("All training ranks ended before the phase was done.", hint=_RESUME)
                return self.summary
            if time.monotonic() - self.heard_at > _SILENT * self.phase.hardware.rank_timeout:
                self._report_silent([rank for rank, status in enumerate(statuses) if status is None])

    def _break_off(self) -> None:
        """Raise StoppedSafely where no finished step is lost by it, else let the ranks save the last one."""
        if self.finished is None or checkpoint_folder(self.phase.work, self.finished).is_dir():
            self.stop.check()
        for connection in self.rank_of.keys() - self.told:
            self.told.add(connection)
            with suppress(OSError):  # The rank is gone: its status tells.
                connection.send(("overdue",))

    def _listen_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and self.ear.open():
            self._listen(min(left, 0.2))

    def _listen(self, seconds: float) -> None:
        if (heard := self.ear.hear(seconds)) is not None:
            self._take(*heard)
            self.heard_at = time.monotonic()  # from now: a step is also worked on here

    def _take(self, connection: Connection, message: tuple[Any, ...]) -> None:
        match message:
            case ("hello", rank):
                self.rank_of[connection] = rank
                self.place[rank] = "connecting to the other ranks"
            case ("at", text):
                self.place[self.rank_of[connection]] = text
            case ("step", step, rollouts, rewards):
                try:
                    self.on_step(step, rollouts, rewards)
                    answer = None
                except StoppedSafely as stop:
                    answer = stop  # The ranks save the step before they stop.
                with suppress(OSError):  # The rank is gone: its status tells.
                    connection.send(("answer", answer))
            case ("finished", step):
                self.finished = step
            case ("done", summary):
                self.summary = summary
            case ("error", error):
                self.errors[self.rank_of.get(connection, -1)] = error

    def _fail(self) -> None:
        """Raise what the ranks reported. A rank that waited in vain names those that did not answer."""
        self._listen_for(_ANSWER)
        for error in self.errors.values():
            if isinstance(error, DiagEvoError):
                raise error
        statuses = [process.status() for process in self.processes]
        if any(status not in (None, 0, 1) for status in statuses):
            self._report_dead(statuses)  # Killed: the others only report that it is gone.
        silent = sorted(set(range(self.phase.hardware.processes)) - set(self.errors))
        rank, text = next((rank, str(error)) for rank, error in self.errors.items())
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
        dead = sorted((status, rank) for rank, status in enumerate(statuses) if status not in (None, 0))
        status, rank = dead[0]
        assert status is not None
        # NCCL ends the ranks that wait; the one that hangs runs on.
        others = [r for r in range(len(statuses)) if statuses[r] is None]
        running = "".join(f" Rank {r} is still running, {self._where(r)}." for r in others)
        tail = self.processes[rank].tail()
        raise ServiceError(
            f"{self._named(rank)} {ending(status)} while {self._where(rank)}.{running} "
            f"Its log: {self._log(rank)}; it ends with:\n{tail}",
            hint=_RESUME,
        )

    def _report_silent(self, running: Sequence[int]) -> None:
        """A rank alone has no other that waits for it; one that hangs at the end is waited for by none."""
        places = "; ".join(f"rank {rank} was {self._where(rank)}" for rank in running)
        raise ServiceError(
            f"No training rank has responded for {_SILENT * self.phase.hardware.rank_timeout:g} s: {places}. "
            f"Its log: {self._log(running[0])}",
            hint=f"hardware.rank_timeout is a quarter of that: raise it if a step takes that long. {_RESUME}",
        )

    def _named(self, rank: int) -> str:
        return f"Training rank {rank} of {self.phase.hardware.processes}"

    def _where(self, rank: int) -> str:
        return self.place.get(rank, "starting")

    def _log(self, rank: int) -> Path:
        return log_of(self.spec_file, self.phase.hardware, rank)
