"""The ranks of a run on this machine: how they are started."""

import os
import sys
from pathlib import Path
from typing import Protocol

from diagevo.config.models import HardwareConfig
from diagevo.errors import ConfigError
from diagevo.sampling.supervised import SupervisedProcess, free_port
from diagevo.training.launch_spec import LaunchSpec

_HERE = "127.0.0.1"


class Rank(Protocol):
    """A process that trains and samples. `status` raises NodeLostError where its node is gone."""

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
        """Give back what they took."""


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
    """What torch asks the environment for, but for a rank's place on its machine."""
    host, port = spec.rendezvous
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(spec.hardware.processes),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": str(threads),
    }


def log_of(spec_file: Path, hardware: HardwareConfig, rank: int) -> Path:
    """Where a rank's output goes; under accelerate's launcher on this machine, that of all ranks."""
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
    """`accelerate launch` for all ranks on one machine, or for one `rank` in a place of its own.

    What the file says of machines and processes is overruled.
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
