"""The part of `train --plan` about a run on a CPU: what it holds at its fullest, and how long it may take."""

import os
from typing import TYPE_CHECKING, Any

from ..render.table import columns

if TYPE_CHECKING:
    from diagevo.config.models import Config

PEAKS = columns("stage, peak: GB, parts: of it")


def of_cpu(config: "Config") -> dict[str, Any] | None:
    """As data; None where a GPU may train, several processes do, or the model is not here."""
    from diagevo.training.on_cpu import pace, peaks, seconds
    from diagevo.training.shapes import find_shape

    hardware, shape = config.hardware, find_shape(config.roles.solver.model)
    if hardware.device != "cpu" or hardware.processes > 1 or hardware.cluster == "ray" or shape is None:
        return None
    warm, each = seconds(config, shape, pace())
    return {
        "peaks": [
            {"stage": peak.stage, "bytes": peak.size, "parts": peak.parts} for peak in peaks(config, shape)
        ],
        "machine_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "warm_start_seconds": warm,
        "round_seconds": each,
    }


def peak_rows(cpu: dict[str, Any]) -> list[dict[str, Any]]:
    """For people: a row a stage."""
    return [
        {
            "stage": peak["stage"],
            "peak": f"{peak['bytes'] / 1e9:.1f}",
            "parts": ", ".join(f"{name} {size / 1e9:.1f}" for name, size in peak["parts"].items()),
        }
        for peak in cpu["peaks"]
    ]


def cpu_fit(cpu: dict[str, Any]) -> str:
    """Whether this machine has that much, and what takes less."""
    most = max((peak["bytes"] for peak in cpu["peaks"]), default=0)
    here = f"{cpu['machine_bytes'] / 1e9:.1f} GB here"
    if most < cpu["machine_bytes"]:
        return f"{most / 1e9:.1f} of {here}"
    less = "lower micro_batch of warm_start, challenger_grpo and solver_grpo, or hardware.rows_at_once"
    return f"not: {most / 1e9:.1f} GB, {here}; {less}"
