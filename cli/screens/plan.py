"""`train --plan`: what a run would do, before it does it."""

from typing import TYPE_CHECKING, Any

from diagevo.text.numbers import count

from ..render.console import plain
from ..render.result import Result, Rows
from ..render.table import columns
from .plan_cpu import PEAKS, cpu_fit, of_cpu, peak_rows
from .plan_memory import memory_lines, memory_of, memory_table, numbered

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.config.placement import Bundle

STAGE = columns(
    "stage, steps: steps ≤, completions: completions ≤, calls: calls ≤, seconds: s measured: 0, about:"
)
GPUS = columns("stage, gpus: GPUs, does:, idle")


def plan(config: "Config", run: str | None, measured: dict[str, float], played: int = 0) -> Result[Any]:
    """Stages of a round with their rollouts and calls, then the whole of what is left to play: disk, devices,
    time."""
    from diagevo.config.workload import workload
    from diagevo.training.disk import gigabytes

    rows = [plain(work) for work in workload(config, measured)]
    whole: dict[str, Any] = {**_whole(config, rows, played), "placement": _placed(config)}
    amount = f"{whole['completions']:,} completions, {whole['calls']:,} diagnostician calls"
    done = f", {played} of them played" if played else ""
    head = f"profile {config.profile}, {count(config.round.rounds, 'round')}{done}; each round at most:"
    parts: list[str | Rows] = [head, Rows(STAGE, rows)]
    if whole["gpus"]:
        parts += ["GPUs, stage by stage:", Rows(GPUS, [_gpu_row(use) for use in whole["gpus"]])]
    lines = []
    if whole["memory"] is not None:
        if whole["memory"]["card"] is not None:
            heading, columns, stages = memory_table(whole["memory"])
            parts += [heading, Rows(columns, stages)]
        lines += memory_lines(whole["memory"])
    if (cpu := whole["cpu"]) is not None:
        parts += ["memory at its peak:", Rows(PEAKS, peak_rows(cpu))]
        lines += [f"fits          {cpu_fit(cpu)}"]
    if (warm := config.warm_start).documents is not None and not played:
        lines += [
            f"warm start    {warm.steps} steps of {warm.batch_documents} documents, once, before round 1"
        ]
    lines += [
        f"{'what is left' if played else 'whole run':<14}at most {amount}",
        f"disk          {gigabytes(whole['disk_bytes'])} of weights, resumable checkpoints included",
        f"devices       {whole['devices']}",
        *(f"{name:<14}{places}" for name, places in whole["placement"].items()),
        f"time          {_time(whole['seconds'], whole['cpu'], whole['rounds'], played)}",
    ]
    return Result({"stages": rows, **whole}, text=[*parts, "\n".join(lines)], run=run)


def _whole(config: "Config", rows: list[dict[str, Any]], played: int) -> dict[str, Any]:
    from diagevo.config.workload import gpu_schedule
    from diagevo.errors import ConfigError
    from diagevo.training.disk import disk_bytes
    from diagevo.training.footprint import SAME_SHAPE, apart

    if (why := apart(config)) is not None:
        raise ConfigError(why, hint=SAME_SHAPE)

    rounds, hardware = max(config.round.rounds - played, 0), config.hardware
    on = " on a Ray cluster" if hardware.cluster == "ray" else ""
    trained = f"{hardware.processes} × {hardware.device}{on}"
    if hardware.colocate_vllm:
        trained += f", vLLM in the trainer with {hardware.vllm_memory:.0%} of each"
    served = ", between trainings a vLLM server" if hardware.serve == "vllm" else ""
    known = all(row["seconds"] is not None for row in rows)
    return {
        "rounds": rounds,
        "completions": rounds * sum(row["completions"] for row in rows),
        "calls": rounds * sum(row["calls"] for row in rows),
        "disk_bytes": disk_bytes(config),
        "devices": trained + served,
        "gpus": [plain(use) for use in gpu_schedule(config)],
        "memory": memory_of(config),
        "cpu": of_cpu(config),
        "seconds": rounds * sum(row["seconds"] for row in rows) if known else None,
    }


def _placed(config: "Config") -> dict[str, str]:
    """The placement groups of each stage on the cluster as it is now. ConfigError where one cannot start."""
    from diagevo.config.placement import engine_bundles, nodes_told, on_gpus, rank_bundles, refusal, told
    from diagevo.errors import ConfigError, DiagEvoError
    from diagevo.sampling.cluster import connected, nodes_of

    hardware = config.hardware
    if hardware.cluster != "ray":
        return {}
    try:
        nodes = nodes_of(connected())
    except DiagEvoError as error:  # also without Ray: the rest of the plan is known
        return {"cluster": f"not known: {error.message}"}
    found = nodes_told(nodes) or "no nodes"
    if (refused := refusal(hardware, nodes)) is not None:
        raise ConfigError(f"{refused[0]} ({found})", hint=refused[1])
    gpus = sum(node.gpus for node in nodes)

    def said(kind: str, places: "list[Bundle]") -> str:
        idle = gpus - sum(place.get("GPU", 0) for place in places)
        return f"{kind} {told(places)}" + (f", {idle} GPUs idle" if on_gpus(hardware, nodes) and idle else "")

    ranks = said("ranks", rank_bundles(hardware, nodes))
    engines = said("engines", engine_bundles(hardware, nodes))
    placed = {"cluster": found, "challenger": ranks}
    placed |= dict.fromkeys(("candidates", "votes"), engines) | {"solver": ranks}
    return placed | ({"validation": engines} if config.validation.questions is not None else {})


def _gpu_row(use: dict[str, Any]) -> dict[str, Any]:
    """For people: GPUs in words."""
    return use | {"gpus": numbered(use["gpus"]), "idle": numbered(use["idle"]) or None}


def _time(seconds: float | None, cpu: dict[str, Any] | None, rounds: int, played: int) -> str:
    if seconds is not None:
        return _hours(seconds)
    unknown = "no earlier run of these settings has measured a round here"
    if cpu is None:
        return f"not known: {unknown}"
    warm, each = 0 if played else cpu["warm_start_seconds"], cpu["round_seconds"]
    begins = f"{_hours(warm)} of warm start, " if warm else ""
    return f"at most about {_hours(warm + rounds * each)}: {begins}{_hours(each)} a round; {unknown}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1, round(seconds / 60))} min"
