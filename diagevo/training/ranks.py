"""The processes that one machine gives to a phase, and the commands that start them.

FSDP and DeepSpeed go through `accelerate launch` with the configured file. Several machines need the run's
folder on a shared disk; the others take part through join.py.
"""

import os
import sys
from pathlib import Path

from diagevo.config.models import HardwareConfig
from diagevo.errors import ConfigError
from diagevo.sampling.supervised import SupervisedProcess, only_gpus
from diagevo.training.job import KEY, free_port


def start_ranks(
    job_file: Path, hardware: HardwareConfig, logs: Path, key: bytes, machine: int = 0
) -> list[SupervisedProcess]:
    """One supervised process a rank of this machine, or accelerate's launcher as the only one."""
    common = {KEY: key.hex(), **only_gpus(hardware.train_gpus)}
    host, port = main_address(hardware)
    if hardware.accelerate_config is not None:
        command = accelerate_command(hardware, job_file, machine, port)
        return [SupervisedProcess(command, log=logs / _named("ranks", machine), env=common)]
    local = hardware.processes
    threads = hardware.threads or max(1, (os.cpu_count() or 1) // local)
    first = machine * local
    return [
        SupervisedProcess(
            worker_command(job_file),
            log=logs / f"rank-{first + place}.log",
            env={
                **common,
                "RANK": str(first + place),
                "LOCAL_RANK": str(place),
                "WORLD_SIZE": str(hardware.ranks),
                "LOCAL_WORLD_SIZE": str(local),
                "MASTER_ADDR": host,
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": str(threads),
            },
        )
        for place in range(local)
    ]


def worker_command(job_file: Path) -> list[str]:
    return [sys.executable, "-m", "diagevo.training.worker", str(job_file)]


def accelerate_command(hardware: HardwareConfig, job_file: Path, machine: int, port: int) -> list[str]:
    """`accelerate launch` on one machine. What the file says of machines and processes is overridden."""
    assert hardware.accelerate_config is not None
    options = {
        "config_file": accelerate_file(hardware.accelerate_config),
        "num_processes": hardware.ranks,
        "num_machines": hardware.machines,
        "machine_rank": machine,
        "main_process_ip": main_address(hardware)[0],
        "main_process_port": port,
    }
    given = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    python, *worker = worker_command(job_file)
    return [python, "-m", "accelerate.commands.launch", *given, *worker]


def join_command(machine: int, run: Path) -> list[str]:
    """What takes part in a run's training on another machine."""
    return ["python", "-m", "diagevo.training.join", str(run), str(machine)]


def main_address(hardware: HardwareConfig) -> tuple[str, int]:
    """Where the ranks meet: as configured, or a free port of this machine where it is alone."""
    if hardware.main_address is None:
        return "127.0.0.1", free_port()
    host, _, port = hardware.main_address.rpartition(":")
    return host, int(port)


def accelerate_file(name: Path) -> Path:
    """The file of `accelerate launch`: one of ours by name (fsdp, deepspeed), or the user's own by path."""
    ours = Path(__file__).parent / "accelerate" / f"{name}.yaml"
    if ours.is_file():
        return ours
    if not name.is_file():
        raise ConfigError(
            f"hardware.accelerate_config names no file: {name}",
            hint="Use fsdp, deepspeed or the path of a file.",
        )
    return name


def _named(stem: str, machine: int) -> str:
    return f"{stem}-{machine}.log" if machine else f"{stem}.log"
