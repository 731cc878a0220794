"""The training ranks of one machine: how they are started."""

import os
import sys
from pathlib import Path

from diagevo.config.models import HardwareConfig
from diagevo.errors import ConfigError
from diagevo.sampling.supervised import SupervisedProcess, only_gpus
from diagevo.training.launch_spec import LaunchSpec


def start_ranks(spec_file: Path, spec: LaunchSpec, machine: int) -> list[SupervisedProcess]:
    """The ranks of `machine` (from 0): a process each, or accelerate's launcher as the only one."""
    hardware = spec.hardware
    gpus = only_gpus(hardware.train_gpus)
    if hardware.accelerate_config is not None:
        return [
            SupervisedProcess(
                accelerate_command(hardware, spec_file, machine, spec.rendezvous),
                log=log_of(spec_file, hardware, machine * hardware.processes),
                env=gpus,
            )
        ]
    host, port = spec.rendezvous
    threads = hardware.threads or max(1, (os.cpu_count() or 1) // hardware.processes)
    first = machine * hardware.processes
    return [
        SupervisedProcess(
            worker_command(spec_file),
            log=log_of(spec_file, hardware, first + local),
            env={
                **gpus,
                "RANK": str(first + local),
                "LOCAL_RANK": str(local),
                "WORLD_SIZE": str(hardware.ranks),
                "LOCAL_WORLD_SIZE": str(hardware.processes),
                "MASTER_ADDR": host,
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": str(threads),
            },
        )
        for local in range(hardware.processes)
    ]


def log_of(spec_file: Path, hardware: HardwareConfig, rank: int) -> Path:
    """Where a rank's output goes; under accelerate's launcher, that of all ranks of its machine."""
    if hardware.accelerate_config is None:
        return spec_file.with_name(f"rank-{rank}.log")
    return spec_file.with_name(f"ranks-of-machine-{rank // hardware.processes}.log")


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


def worker_command(spec_file: Path) -> list[str]:
    return [sys.executable, "-m", "diagevo.training.worker", str(spec_file)]


def accelerate_command(
    hardware: HardwareConfig, spec_file: Path, machine: int, rendezvous: tuple[str, int]
) -> list[str]:
    """`accelerate launch` on one machine. What the file says of machines and processes is overruled."""
    assert hardware.accelerate_config is not None
    host, port = rendezvous
    options = {
        "config_file": accelerate_file(hardware.accelerate_config),
        "num_processes": hardware.ranks,
        "num_machines": hardware.machines,
        "machine_rank": machine,
        "main_process_ip": host,
        "main_process_port": port,
    }
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    python, *worker = worker_command(spec_file)
    return [python, "-m", "accelerate.commands.launch", *given, *worker]
