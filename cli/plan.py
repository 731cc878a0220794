"""`train --plan`: what a run would do, before it does it."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import render
from .options import Call

if TYPE_CHECKING:
    from diagevo.config.models import Config

STAGE = (
    render.Column("stage"),
    render.Column("steps", "steps ≤", "right"),
    render.Column("completions", "completions ≤", "right"),
    render.Column("calls", "calls ≤", "right"),
    render.Column("seconds", "s measured", "right", digits=0),
    render.Column("about", ""),
)


def print_plan(call: Call, config: "Config", run: str | None, measured: dict[str, float]) -> None:
    """Stages of a round with their rollouts and calls, then the whole: disk, devices, time."""
    from diagevo.config.workload import workload

    rows = [render.plain(work) for work in workload(config, measured)]
    whole = _whole(config, rows)
    if call.json:
        render.document(call, {"stages": rows, **whole}, "", run=run)
        return
    amount = f"{whole['completions']:,} completions, {whole['calls']:,} diagnostician calls"
    lines = [
        f"profile {config.profile}, {config.round.rounds} rounds; each round at most:",
        "",
        render.aligned(STAGE, rows),
        f"whole run     at most {amount}",
        f"disk          {_gigabytes(whole['disk_bytes'])} of weights, resumable checkpoints included",
        f"devices       {whole['devices']}",
        f"time          {_time(whole['seconds'])}",
    ]
    render.document(call, None, "\n".join(lines))


def _whole(config: "Config", rows: list[dict[str, Any]]) -> dict[str, Any]:
    rounds, size = config.round.rounds, _bytes(config)
    keep = config.round.keep_checkpoints
    policies = 2 if config.round.train_challenger else 1
    kept = rounds * policies if keep is None else min(rounds, keep) * policies + 1
    # Inside a phase: weights, and AdamW's two moments in float32.
    resumable = 5 * (size or 0)
    hardware = config.hardware
    devices = f"{hardware.processes} × {hardware.device}" + (
        f", vLLM in the trainer with {hardware.vllm_memory:.0%} of each" if hardware.colocate_vllm else ""
    )
    known = all(row["seconds"] is not None for row in rows)
    return {
        "rounds": rounds,
        "completions": rounds * sum(row["completions"] for row in rows),
        "calls": rounds * sum(row["calls"] for row in rows),
        "disk_bytes": None if size is None else kept * size + resumable,
        "devices": devices,
        "seconds": rounds * sum(row["seconds"] for row in rows) if known else None,
    }


def _bytes(config: "Config") -> int | None:
    """Size of one policy: its folder's, or two bytes a parameter of the size in a hub id's name."""
    model = config.roles.solver.model
    folder = Path(model).expanduser()
    if model == "builtin:arithmetic":
        from importlib.resources import files

        folder = Path(str(files("diagevo.arithmetic") / "weights"))
    if folder.is_dir():
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    named = re.search(r"(\d+(?:\.\d+)?)B\b", model)
    return None if named is None else int(float(named[1]) * 2e9)


def _gigabytes(size: int | None) -> str:
    if size is None:
        return "unknown (the model is not here)"
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "not known: no earlier run of these settings has measured a round here"
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min"
