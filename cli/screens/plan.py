"""`train --plan`: what a run would do, before it does it."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..options import Call
from ..render import console as render
from ..render.table import Column, aligned
from .plan_memory import memory_lines, memory_of

if TYPE_CHECKING:
    from diagevo.config.models import Config

STAGE = (
    Column("stage"),
    Column("steps", "steps ≤", "right"),
    Column("completions", "completions ≤", "right"),
    Column("calls", "calls ≤", "right"),
    Column("seconds", "s measured", "right", digits=0),
    Column("about", ""),
)


def print_plan(call: Call, config: "Config", run: str | None, measured: dict[str, float]) -> None:
    """Stages of a round with their rollouts and calls, then the whole: disk, devices, time."""
    from diagevo.config.workload import workload
    from diagevo.training.disk import gigabytes

    rows = [render.plain(work) for work in workload(config, measured)]
    whole: dict[str, Any] = {**_whole(config, rows), "launch": _launch(config, run)}
    if call.json:
        render.document(call, {"stages": rows, **whole}, "", run=run)
        return
    amount = f"{whole['completions']:,} completions, {whole['calls']:,} diagnostician calls"
    lines = [
        f"profile {config.profile}, {config.round.rounds} rounds; each round at most:",
        "",
        aligned(STAGE, rows),
    ]
    if whole["gpus"]:
        lines += ["GPUs, stage by stage:", "", aligned(_gpu_columns(config), whole["gpus"])]
    if whole["memory"] is not None:
        lines += memory_lines(whole["memory"])
    lines += [
        f"whole run     at most {amount}",
        f"disk          {gigabytes(whole['disk_bytes'])} of weights, resumable checkpoints included",
        f"devices       {whole['devices']}",
        *(f"{name:<14}{command}" for name, command in whole["launch"].items()),
        f"time          {_time(whole['seconds'])}",
    ]
    render.document(call, None, "\n".join(lines))


def _whole(config: "Config", rows: list[dict[str, Any]]) -> dict[str, Any]:
    from diagevo.config.workload import gpu_schedule
    from diagevo.training.disk import disk_bytes

    rounds, hardware = config.round.rounds, config.hardware
    machines = f"{hardware.machines} machines with each " if hardware.machines > 1 else ""
    trained = f"{machines}{hardware.processes} × {hardware.device}"
    if hardware.colocate_vllm:
        trained += f", vLLM in the trainer with {hardware.vllm_memory:.0%} of each"
    served = ", beside it a vLLM server" if hardware.serve == "vllm" else ""
    known = all(row["seconds"] is not None for row in rows)
    return {
        "rounds": rounds,
        "completions": rounds * sum(row["completions"] for row in rows),
        "calls": rounds * sum(row["calls"] for row in rows),
        "disk_bytes": disk_bytes(config),
        "devices": trained + served,
        "gpus": [render.plain(use) for use in gpu_schedule(config)],
        "memory": memory_of(config),
        "seconds": rounds * sum(row["seconds"] for row in rows) if known else None,
    }


def _launch(config: "Config", run: str | None) -> dict[str, str]:
    """What starts the ranks of a phase here, and what is to be run on each other machine."""
    from diagevo.training.ranks import accelerate_command, worker_command

    hardware, job = config.hardware, Path("JOB")
    if hardware.accelerate_config is not None:
        [python, *command] = accelerate_command(hardware, job, 0, (hardware.address or "127.0.0.1", 0))
    elif hardware.ranks > 1:
        [python, *command] = worker_command(job)
    else:
        return {}
    joins = {
        f"machine {n}": f"diagevo join --run {run or 'RUN'} --machine {n}"
        for n in range(1, hardware.machines)
    }
    return {"launch": shlex.join([Path(python).name, *command])} | joins


def _gpu_columns(config: "Config") -> tuple[Column, ...]:
    hardware = config.hardware
    training = hardware.train_gpus or tuple(range(hardware.processes))
    serving = hardware.serve_gpus if hardware.serve == "vllm" else training[:1]
    named = ", ".join(map(str, serving)) if serving else "every one"
    return (
        Column("stage"),
        Column("train", f"on {', '.join(map(str, training))}"),
        Column("serve", f"on {named}"),
    )


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "not known: no earlier run of these settings has measured a round here"
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min"
