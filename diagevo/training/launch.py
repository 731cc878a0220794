"""A phase in processes of its own: one a GPU, or several on the CPU over gloo; watched until all have ended.

Memory on a GPU is given back because the processes end. A rank that dies or hangs ends the phase with its
name. FSDP and DeepSpeed go through `accelerate launch` with the configured file. Other machines start ranks
of their own for the same launch (machines.py): they need the run's folder on a disk that all see.
"""

import queue
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from typing import Any

from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig, TrainingConfig
from diagevo.errors import DiagEvoError, ServiceError, StoppedSafely
from diagevo.sampling.supervised import SupervisedProcess, ending
from diagevo.training.launch_spec import NAME, LaunchSpec, RewardSpec, free_port
from diagevo.training.ranks import log_of, start_ranks
from diagevo.training.rollouts import OnStep, TrainingRow, TrainingSummary

_RESUME = "The last whole checkpoint is kept: go on with diagevo train --resume."
_ANSWER = 5.0  # seconds that ranks get to report too, once one of them has


def train_in_processes(
    start: Path,
    rows: Sequence[TrainingRow],
    reward: RewardSpec,
    settings: GRPOConfig,
    sampling: SamplingConfig,
    *,
    output: Path,
    work: Path,
    seed: int,
    on_step: OnStep,
    resume: bool,
    hardware: HardwareConfig,
    training: TrainingConfig,
    logs: Path,
    keep_up: Callable[[], None] = lambda: None,
) -> TrainingSummary:
    """As `grpo.train`, in `hardware.ranks` ranks whose output goes to `logs`.

    `on_step` is called here, in this process, while rank 0 waits; `keep_up` all the while, to look after a
    server that the ranks ask. Raises what a rank raised where that is an error of diagevo's, ServiceError
    with the rank and its log where it died or hung.
    """
    key, host = secrets.token_bytes(32), hardware.address or "127.0.0.1"
    spec_file = logs / NAME
    with tempfile.TemporaryDirectory(prefix="diagevo-") as folder:
        address = str(Path(folder) / "ranks") if hardware.machines == 1 else (host, 0)
        with Listener(address, authkey=key) as listener:
            spec = LaunchSpec(
                start=start,
                rows=tuple(rows),
                reward=reward,
                settings=settings,
                sampling=sampling,
                output=output,
                work=work,
                seed=seed,
                resume=resume,
                hardware=hardware,
                training=training,
                address=listener.address,
                rendezvous=(host, free_port(host)),
                key=key.hex(),
            )
            spec.write(spec_file)
            ranks = start_ranks(spec_file, spec, machine=0)
            try:
                return _Supervision(listener, ranks, spec_file, hardware, on_step, keep_up).run()
            finally:
                spec_file.unlink(missing_ok=True)
                for rank in ranks:
                    rank.stop()


class _Supervision:
    """Listens to the ranks and watches their processes until the phase is done or one of them fails."""

    def __init__(
        self,
        listener: Listener,
        processes: Sequence[SupervisedProcess],
        spec_file: Path,
        hardware: HardwareConfig,
        on_step: OnStep,
        keep_up: Callable[[], None],
    ) -> None:
        self._listener = listener
        self._processes = processes
        self._job_file = spec_file
        self._hardware = hardware
        self._ranks = hardware.ranks
        self._on_step = on_step
        self._keep_up = keep_up
        self._arrivals: queue.SimpleQueue[Connection] = queue.SimpleQueue()
        self._open: list[Connection] = []
        self._rank_of: dict[Connection, int] = {}
        self._place: dict[int, str] = {}
        self._errors: dict[int, DiagEvoError | str] = {}
        self._lost: list[int] = []
        """Ranks of other machines whose connection ended; of our own we see the processes."""
        self._summary: TrainingSummary | None = None

    def run(self) -> TrainingSummary:
        threading.Thread(target=self._accept, daemon=True).start()
        while True:
            self._listen(0.2)
            self._keep_up()
            if self._errors:
                self._fail()
            statuses = [process.status() for process in self._processes]
            if any(status not in (None, 0) for status in statuses):
                self._listen_for(1.0)  # What a dead rank still had to say is in its pipe.
                if self._errors:
                    self._fail()
                self._report_dead([process.status() for process in self._processes])
            if self._lost and self._summary is None:
                self._listen_for(_ANSWER)
                if self._errors:
                    self._fail()
                if self._summary is None:
                    self._report_lost(self._lost[0])
            if all(status == 0 for status in statuses):
                self._listen_for(1.0)
                if self._summary is None:
                    raise ServiceError("All training ranks ended before the phase was done.", hint=_RESUME)
                return self._summary

    def _accept(self) -> None:
        while True:
            try:
                self._arrivals.put(self._listener.accept())
            except (AuthenticationError, EOFError):
                continue  # Not one of our ranks.
            except OSError:
                return  # The phase is over, and the listener with it.

    def _listen_for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and (self._open or not self._arrivals.empty()):
            self._listen(min(left, 0.2))

    def _listen(self, seconds: float) -> None:
        while not self._arrivals.empty():
            self._open.append(self._arrivals.get())
        if not self._open:
            time.sleep(seconds)
            return
        for connection in wait_for_any(self._open, timeout=seconds):
            assert isinstance(connection, Connection)
            try:
                self._take(connection, connection.recv())
            except (EOFError, OSError):
                self._open.remove(connection)
                if (rank := self._rank_of.get(connection, 0)) >= self._hardware.processes:
                    self._lost.append(rank)

    def _take(self, connection: Connection, message: tuple[Any, ...]) -> None:
        match message:
            case ("hello", rank):
                self._rank_of[connection] = rank
                self._place[rank] = "meeting the other ranks"
            case ("at", text):
                self._place[self._rank_of[connection]] = text
            case ("step", step, rollouts, rewards):
                try:
                    self._on_step(step, rollouts, rewards)
                except StoppedSafely as stop:
                    connection.send(stop)  # The ranks save the step before they stop.
                else:
                    connection.send(None)
            case ("done", summary):
                self._summary = summary
            case ("error", error):
                self._errors[self._rank_of.get(connection, -1)] = error

    def _fail(self) -> None:
        """Raise what the ranks reported. A rank that waited in vain names those that did not answer."""
        self._listen_for(_ANSWER)
        for error in self._errors.values():
            if isinstance(error, DiagEvoError):
                raise error
        statuses = [process.status() for process in self._processes]
        if any(status not in (None, 0, 1) for status in statuses):
            self._report_dead(statuses)  # Killed: the others only report that it is gone.
        if gone := [rank for rank in self._lost if rank not in self._errors]:
            self._report_lost(gone[0])
        silent = sorted(set(range(self._ranks)) - set(self._errors))
        rank, text = next((rank, str(error)) for rank, error in self._errors.items())
        if silent and ("Timed out" in text or "timeout" in text.lower()):
            places = "; ".join(f"rank {r} was {self._where(r)}" for r in silent)
            raise ServiceError(
                f"Training rank {silent[0]} of {self._ranks} did not answer the others in time: {places}. "
                f"Its log: {self._log(silent[0])}",
                hint=f"hardware.rank_timeout is how long ranks wait. {_RESUME}",
            )
        raise ServiceError(
            f"Training rank {rank} of {self._ranks} failed: {text} Its log: {self._log(rank)}", hint=_RESUME
        )

    def _report_dead(self, statuses: Sequence[int | None]) -> None:
        # A signal from outside is the cause; an exit status may be its consequence.
        dead = sorted((status, rank) for rank, status in enumerate(statuses) if status not in (None, 0))
        status, rank = dead[0]
        assert status is not None
        # NCCL ends the ranks that wait; the one that hangs runs on.
        others = [r for r in range(len(statuses)) if statuses[r] is None]
        running = "".join(f" Rank {r} runs still, {self._where(r)}." for r in others)
        tail = self._processes[rank].tail()
        raise ServiceError(
            f"Training rank {rank} of {self._ranks} {ending(status)} while {self._where(rank)}.{running} "
            f"Its log: {self._log(rank)}; it ends with:\n{tail}",
            hint=_RESUME,
        )

    def _report_lost(self, rank: int) -> None:
        machine = rank // self._hardware.processes
        raise ServiceError(
            f"Training rank {rank} of {self._ranks}, on machine {machine}, has ended or cannot be reached; "
            f"it was {self._where(rank)}. Its log: {self._log(rank)}",
            hint=_RESUME,
        )

    def _where(self, rank: int) -> str:
        if rank in self._place:
            return self._place[rank]
        if rank < self._hardware.processes:
            return "starting"
        machine = rank // self._hardware.processes
        return f"not there (on machine {machine} run: diagevo join --machine {machine})"

    def _log(self, rank: int) -> Path:
        return log_of(self._job_file, self._hardware, rank)
