"""`train --plan`: what a run would do, before it does it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diagevo.text.numbers import count

from ..render.result import Result, Rows
from ..render.table import columns

if TYPE_CHECKING:
    from diagevo.config.models import Config

STAGE = columns(
    "stage, steps: steps ≤, completions: completions ≤, calls: calls ≤, seconds: s measured: 0, about:"
)
PARTS = columns("part, minutes: min: 0")
PEAKS = columns("stage, gpus: GPUs, peak: GB, parts: of it")


def plan(config: "Config", run: str | None, measured: dict[str, float], played: int = 0) -> Result[Any]:
    """Stages of a round with their rollouts and calls, then totals for what is left: disk, devices, time."""
    from diagevo.planning.disk import gigabytes
    from diagevo.planning.run_plan import plan_run

    whole = plan_run(config, measured, played)
    amount = f"{whole['completions']:,} completions, {whole['calls']:,} diagnostician calls"
    done = f", {played} of them played" if played else ""
    head = f"profile {config.profile}, {count(config.round.rounds, 'round')}{done}; each round at most:"
    parts: list[str | Rows] = [head, Rows(STAGE, whole["stages"])]
    lines = []
    if (memory := whole["memory"]) is not None:
        if memory["card"] is not None:
            heading = f"memory of a GPU of {memory['card']} GB at its peak; answers are of {memory['mean']}"
            parts += [f"{heading} tokens:", Rows(PEAKS, list(map(_gpu_peak, memory["stages"])))]
        if memory["round"]:
            parts += [f"time of a round, {_assumed(config, memory['card'])}:", Rows(PARTS, memory["round"])]
        lines += _cards(memory)
    if (cpu := whole["cpu"]) is not None:
        peaks = [
            {"stage": peak["stage"], "peak": _gb(peak["bytes"]), "parts": ", ".join(_sizes(peak["parts"]))}
            for peak in cpu["peaks"]
        ]
        parts += ["memory at its peak:", Rows((PEAKS[0], *PEAKS[2:]), peaks)]
        lines += [f"fits          {_cpu_fit(cpu)}"]
    if (warm := config.warm_start).documents is not None and not played:
        lines += [
            f"warm start    {warm.steps} steps of {warm.batch_documents} documents, once, before round 1"
        ]
    lines += [
        f"{'what is left' if played else 'whole run':<14}at most {amount}",
        f"disk          {gigabytes(whole['disk_bytes'])} of weights, resumable checkpoints included",
        f"devices       {whole['devices']}",
        *(f"{name:<14}{places}" for name, places in whole["placement"].items()),
        f"time          {_time(whole['seconds'], cpu, memory, whole['rounds'], played)}",
    ]
    return Result(whole, text=[*parts, "\n".join(lines)], run=run)


def _gpu_peak(stage: dict[str, Any]) -> dict[str, Any]:
    """A stage for people."""
    whose = "each rank's" if stage["placed"] else numbered(stage["gpus"]) or "one more"
    parts = _sizes(stage["parts"])
    for engine in stage["engines"]:
        cache = f"{engine['cache_tokens'] // 1000:,}k tokens of cache"
        at_once = f"{engine['answers_at_once']} answers at once"
        parts.append(f"{engine['name']} {_gb(engine['bytes'])} with {cache}, {at_once}")
    return {
        "stage": stage["stage"],
        "gpus": whose,
        "peak": _gb(stage["peak_bytes"]),
        "parts": ", ".join(parts),
    }


def _cards(memory: dict[str, Any]) -> list[str]:
    """The cards on which it fits, and what to change for the others."""
    from diagevo.planning.disk import gigabytes

    if memory["card"] is None:
        return ["memory        unknown: the models' config.json is not here; download them first"]
    yes = [card for card, fit in memory["fits"].items() if fit]
    no = [card for card, fit in memory["fits"].items() if not fit]
    words = f"GPUs of {', '.join(yes)} GB" if yes else "none of the known cards"
    without = f"; not of {', '.join(no)}" if yes and no else ""
    few = [f"few at once   of {card} GB: {words}" for card, words in memory["few_at_once"].items()]
    ranks = memory["host_ranks"]
    processes = "a training process" if ranks == 1 else f"{ranks} training processes"
    host_memory_bytes = f"{gigabytes(memory['host_bytes'])} of a machine's memory for {processes}"
    fits = [f"fits          {words}{without}", *([f"to use less   {memory['less']}"] if no else []), *few]
    return [*fits, f"host          {host_memory_bytes}"]


def _cpu_fit(cpu: dict[str, Any]) -> str:
    """Whether this machine has that much memory, and what needs less."""
    most = max((peak["bytes"] for peak in cpu["peaks"]), default=0)
    here = f"{_gb(cpu['machine_bytes'])} GB here"
    if most < cpu["machine_bytes"]:
        return f"{_gb(most)} of {here}"
    memory_advice = (
        "lower micro_batch of warm_start, challenger_grpo and solver_grpo, or hardware.rows_at_once"
    )
    return f"not: {_gb(most)} GB, {here}; {memory_advice}"


def numbered(gpus: Sequence[int]) -> str:
    """Device numbers as people write them: 0-3, 6."""
    runs: list[list[int]] = []
    for gpu in gpus:
        if runs and gpu == runs[-1][-1] + 1:
            runs[-1].append(gpu)
        else:
            runs.append([gpu])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f}"


def _sizes(parts: Mapping[str, int]) -> list[str]:
    return [f"{name} {_gb(size)}" for name, size in parts.items()]


def _assumed(config: "Config", card: int) -> str:
    """The assumptions behind the time of a round on GPUs."""
    from diagevo.planning.on_gpus import COPY, DECODING, DISK, FAST, LINKS, READING, SENDING, TRAINING
    from diagevo.planning.run_plan import validation_questions

    name, bandwidth, operations = FAST[card]
    counted = validation_questions(config) or config.validation.questions is None
    held = "" if counted else "; validation is not counted"
    if config.hardware.cluster == "ray":
        held += "; nor is the network between nodes" if held else "; the network between nodes is not counted"
    return (
        f"by arithmetic, not measured; {config.hardware.processes} × {name}: decoding reads {DECODING:.0%} of"
        f" {bandwidth / 1e12:g} TB/s, prompts reach {READING:.0%} and updates {TRAINING:.0%} of"
        f" {operations / 1e12:g} TFLOP/s, exchanges {SENDING:.0%} of {LINKS[card] / 1e9:g} GB/s, the disk"
        f" {DISK / 1e9:g}, a copy to the host {COPY / 1e9:g}{held}"
    )


def _time(
    seconds: float | None,
    cpu: dict[str, Any] | None,
    memory: dict[str, Any] | None,
    rounds: int,
    played: int,
) -> str:
    if seconds is not None:
        return _hours(seconds)
    unknown = "no earlier run of these settings has measured a round here"
    if memory is not None and memory["round"]:
        whole = 60 * sum(part["rounds"] * part["minutes"] for part in memory["round"])
        return f"about {_hours(whole)}: {_hours(whole / max(1, rounds))} a round; {unknown}"
    if cpu is None:
        return f"not known: {unknown}"
    before, each = 0 if played else cpu["first_seconds"], cpu["round_seconds"]
    begins = f"{_hours(before)} before round 1, " if before else ""
    return f"at most about {_hours(before + rounds * each)}: {begins}{_hours(each)} a round; {unknown}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1, round(seconds / 60))} min"
