"""The ranks of a run: how they are started, here or in places of a Ray cluster, with one JSON file; and the
messages between them and the run.

Messages to a rank, each a tuple that begins with its name:
  ("play", phase)                       a phase, as grpo.py plays it
  ("sample", asked)                     a policy answers what comes; a `SamplingRequest`
  ("ask", prompts)                      some of it: (place, prompt, samples of that text before it), several
  ("enough",)                           nothing more will come
  ("answer", answer)                    to a step: None, or a StoppedSafely that ends the phase after it
  ("overdue",)                          the step under way is to be broken off, with those before it saved
  ("end",)                              it ends

Messages of a rank:
  ("hello", rank)                       the rank is up
  ("at", text)                          what it does now; the last one names a rank that hangs
  ("step", step, rollouts, rewards)     from rank 0 alone; it waits for the answer
  ("updated", step, metrics)            from rank 0 alone: the step's weights are there
  ("ready", messages)                   the policy is there; so many "ask" may be unanswered at once
  ("answered", completions)             of one "ask", by place and sample
  ("done", summary)                     of a phase or of what was asked; it waits for what is next
  ("error", error)                      it ends after this; an error of ours, or another's text
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec
from pydantic import BaseModel

from diagevo.config.models import HardwareConfig, SamplingConfig, TrainingConfig
from diagevo.config.resources import rank_bundles
from diagevo.errors import ConfigError, NodeLostError, ServiceError
from diagevo.private import private_folder
from diagevo.progress import StopFlag, now_playing
from diagevo.sampling.cluster import Places, connected, nodes_of
from diagevo.sampling.sampler import SamplingParams
from diagevo.sampling.supervised import SupervisedProcess, free_port

NAME = "launch.json"  # in the folder of the ranks' logs, until all of them have read it
_HERE = "127.0.0.1"
_ANSWER = 60.0  # seconds after which a node that says nothing counts as lost


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A call of a sampler, but for its prompts."""

    policy: Path
    n: int
    params: SamplingParams
    seed: int
    template_kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """What a rank is, and where it finds the run and the other ranks."""

    model: Path
    """The solver that the run started from."""
    hardware: HardwareConfig
    sampling: SamplingConfig
    training: TrainingConfig
    address: str | tuple[str, int]
    """Where the run listens: a socket's path, or host and port on a cluster."""
    rendezvous: tuple[str, int]
    """Host and port at which the ranks find each other."""
    key: str
    """What authenticates a rank to the run, in hex. It also tells one launch from another."""

    def write(self, path: Path) -> None:
        """Written atomically, readable only by this user: it contains the key."""
        private_folder(path.parent)
        staging = path.with_name(f".staging-{path.name}")
        staging.unlink(missing_ok=True)
        with open(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            placed = replace(self, model=self.model.resolve())
            file.write(msgspec.json.encode(placed, enc_hook=_plain))
        staging.replace(path)

    @classmethod
    def read(cls, path: Path) -> "LaunchSpec":
        return msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=_made)


def _plain(part: Any) -> Any:
    return part.model_dump(mode="json") if isinstance(part, BaseModel) else str(part)


def _made(kind: type, value: Any) -> Any:
    return kind.model_validate(value) if issubclass(kind, BaseModel) else kind(value)


class Rank(Protocol):
    """A process that trains and samples. `status` raises NodeLostError if its node is gone."""

    def status(self) -> int | None: ...
    def tail(self) -> str: ...
    def stop(self) -> None: ...


class Ranks(Protocol):
    """Where the ranks of a run are started."""

    @property
    def listen_at(self) -> str | None:
        """The host at which the run listens to them; None: they reach a socket's path."""
        ...

    @property
    def rendezvous(self) -> tuple[str, int]:
        """Host and port at which they find each other."""
        ...

    def start(self, spec_file: Path, spec: LaunchSpec) -> list[Rank]:
        """All of them; accelerate's launcher on one machine is the only one."""
        ...

    def close(self) -> None:
        """Release their resources."""


class LocalRanks:
    """Implements `Ranks` on this machine."""

    listen_at = None

    def __init__(self) -> None:
        self.rendezvous = (_HERE, free_port(_HERE))

    def start(self, spec_file: Path, spec: LaunchSpec) -> list[Rank]:
        hardware = spec.hardware
        if hardware.accelerate_config is not None:
            command = accelerate_command(hardware, spec_file, spec.rendezvous)
            return [SupervisedProcess(command, log=log_of(spec_file, hardware, 0))]
        threads = hardware.threads or max(1, (os.cpu_count() or 1) // hardware.processes)
        return [
            SupervisedProcess(
                worker_command(spec_file),
                log=log_of(spec_file, hardware, rank),
                env={
                    **rank_environment(spec, rank, threads),
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(hardware.processes),
                },
            )
            for rank in range(hardware.processes)
        ]

    def close(self) -> None:
        """Nothing was reserved."""


def rank_environment(spec: LaunchSpec, rank: int, threads: int) -> dict[str, str]:
    """The environment variables that torch needs, except a rank's local index."""
    host, port = spec.rendezvous
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(spec.hardware.processes),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(threads),
    }


def log_of(spec_file: Path, hardware: HardwareConfig, rank: int) -> Path:
    """The log of a rank's output; under accelerate's launcher on this machine, that of all ranks."""
    if hardware.accelerate_config is None or hardware.cluster == "ray":
        return spec_file.with_name(f"rank-{rank}.log")
    return spec_file.with_name("ranks.log")


def accelerate_file(name: Path) -> Path:
    """The file of `accelerate launch`: ours by name (fsdp), or the user's own by path."""
    ours = Path(__file__).parent / "accelerate" / f"{name}.yaml"
    if ours.is_file():
        return ours
    if not name.is_file():
        raise ConfigError(
            f"hardware.accelerate_config names no file: {name}",
            hint="Use fsdp or the path of a file.",
        )
    return name


def worker_command(spec_file: Path) -> list[str]:
    return [sys.executable, "-m", "diagevo.training.worker", str(spec_file)]


def accelerate_command(
    hardware: HardwareConfig, spec_file: Path, rendezvous: tuple[str, int], *, rank: int | None = None
) -> list[str]:
    """`accelerate launch` for all ranks on one machine, or for one `rank` in its own placement.

    The file's machines and processes are overridden.
    """
    assert hardware.accelerate_config is not None
    host, port = rendezvous
    options = {
        "config_file": accelerate_file(hardware.accelerate_config),
        "num_processes": hardware.processes,
        "num_machines": 1 if rank is None else hardware.processes,
        "machine_rank": rank or 0,
        "main_process_ip": host,
        "main_process_port": port,
    }
    groups, flags = hardware.processes // (hardware.fsdp_size or hardware.processes), []
    if groups > 1:
        flags = ["--use_fsdp", "--use_parallelism_config"]
        options["fsdp_version"] = 2  # the file that says so is read after this is checked
        options["parallelism_config_dp_replicate_size"] = groups
        options["parallelism_config_dp_shard_size"] = hardware.fsdp_size
    given = flags + [word for name, value in options.items() for word in (f"--{name}", str(value))]
    python, *worker = worker_command(spec_file)
    return [python, "-m", "accelerate.commands.launch", *given, *worker]


class Host:
    """The content of an actor on a node: one rank's process, which ends with it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: SupervisedProcess | None = None

    def __repr__(self) -> str:
        return self._name

    def place(self) -> tuple[str, int]:
        """The node's address, and a free port there."""
        from ray.util import get_node_ip_address

        address = get_node_ip_address()
        return address, free_port(address)

    def start(self, argv: Sequence[str], log: str, env: dict[str, str]) -> None:
        self._process = SupervisedProcess(argv, log=Path(log), env=env)

    def status(self) -> int | None:
        assert self._process is not None
        return self._process.status()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


class RayRank:
    """A rank in the place that it was given."""

    def __init__(self, ray: Any, host: Any, log: Path, name: str) -> None:
        """`name`: which rank it is, and where."""
        self.log = log
        self._ray, self._host, self._name = ray, host, name

    def started(self, answer: Any) -> None:
        """Wait for the answer of its node to the start. Raises ServiceError if it could not be started,
        NodeLostError if its node does not answer."""
        try:
            self._ray.get(answer, timeout=_ANSWER)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as error:
            raise NodeLostError(f"{self._name} is lost with its node", hint=f"its log: {self.log}") from error
        except self._ray.exceptions.RayTaskError as error:
            raise ServiceError(
                f"{self._name} could not be started: {error.cause}",
                hint="every node must see the folder of the runs and write to it: docs/howto/cluster.md",
            ) from error

    def status(self) -> int | None:
        """Raises NodeLostError if its node does not answer."""
        try:
            return self._ray.get(self._host.status.remote(), timeout=_ANSWER)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as error:
            raise NodeLostError(f"{self._name} is lost with its node", hint=f"its log: {self.log}") from error

    def tail(self) -> str:
        """The last lines of its log, which is on a disk shared by all nodes."""
        try:
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        except OSError:
            return ""

    def stop(self) -> None:
        try:
            self._ray.get(self._host.stop.remote(), timeout=_ANSWER)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError):
            return  # With its node.


class RayRanks:
    """Implements `Ranks`. A rank sees only its own GPU, so its local index is always 0."""

    def __init__(self, hardware: HardwareConfig, stop: StopFlag) -> None:
        """Wait for the places, at most `hardware.rank_timeout` seconds."""
        self._ray = connected()
        bundles = rank_bundles(hardware, nodes_of(self._ray))
        name = now_playing().partition(",")[0]  # of the run: they outlive the stage
        self._places = Places(
            self._ray, bundles, name=f"{name}, ranks", timeout=hardware.rank_timeout, stop=stop
        )
        self._hosts = [
            self._places.actor(Host, rank, f"{name}, rank {rank}") for rank in range(hardware.processes)
        ]
        self.listen_at = str(self._ray.util.get_node_ip_address())
        try:
            places = [host.place.remote() for host in self._hosts]
            found = self._ray.get(places, timeout=hardware.rank_timeout)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as error:
            self.close()
            raise NodeLostError(
                f"{name}: a node was lost before its rank was started",
                hint="continue with: diagevo train --resume",
            ) from error
        at = [address for address, _ in found]
        # Neighbours are on one node: groups that share the training state are of ranks in a row.
        order = sorted(range(len(at)), key=lambda rank: at.index(at[rank]))
        self._hosts, found = [self._hosts[rank] for rank in order], [found[rank] for rank in order]
        self._where = [address for address, _ in found]
        self.rendezvous: tuple[str, int] = found[0]

    def start(self, spec_file: Path, spec: LaunchSpec) -> list[Rank]:
        hardware, ranks, answers = spec.hardware, [], []
        for rank, host in enumerate(self._hosts):
            log = log_of(spec_file, hardware, rank)
            alone = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            environment = rank_environment(spec, rank, hardware.threads or 1) | alone
            command = worker_command(spec_file)
            if hardware.accelerate_config is not None:
                command = accelerate_command(hardware, spec_file, spec.rendezvous, rank=rank)
                environment = {}
            answers.append(host.start.remote(command, str(log), environment))
            name = f"training rank {rank} of {hardware.processes}, on node {self._where[rank]},"
            ranks.append(RayRank(self._ray, host, log, name))
        for rank, answer in zip(ranks, answers, strict=True):
            rank.started(answer)
        return ranks

    def close(self) -> None:
        """Release the placements; processes in them end."""
        self._places.close()
