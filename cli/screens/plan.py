"""`train --plan`: what a run would do, before it does it."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diagevo.progress import VALIDATION, WARM_START
from diagevo.text.numbers import count

from ..render.console import plain
from ..render.result import Result, Rows
from ..render.table import columns
from .board import named

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.planning.footprint import Load

STAGE = columns(
    "stage, steps: steps ≤, completions: completions ≤, calls: calls ≤, seconds: s measured: 0, about:"
)
BASE = named(0, VALIDATION)
"""What is measured before round 1."""
PARTS = columns("part, minutes: min: 0")
PEAKS = columns("stage, gpus: GPUs, peak: GB, parts: of it")


def plan(config: "Config", run: str | None, measured: dict[str, float], played: int = 0) -> Result[Any]:
    """Stages of a round with their rollouts and calls, then the whole of what is left to play: disk, devices,
    time."""
    from diagevo.config.resources import workload
    from diagevo.planning.disk import gigabytes

    rows = [plain(work) for work in workload(config, measured)]
    whole: dict[str, Any] = {**_whole(config, rows, played, measured), "placement": _placed(config)}
    amount = f"{whole['completions']:,} completions, {whole['calls']:,} diagnostician calls"
    done = f", {played} of them played" if played else ""
    head = f"profile {config.profile}, {count(config.round.rounds, 'round')}{done}; each round at most:"
    parts: list[str | Rows] = [head, Rows(STAGE, rows)]
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
    return Result({"stages": rows, **whole}, text=[*parts, "\n".join(lines)], run=run)


def _whole(
    config: "Config", rows: list[dict[str, Any]], played: int, measured: Mapping[str, float]
) -> dict[str, Any]:
    from diagevo.errors import ConfigError
    from diagevo.planning.disk import disk_bytes
    from diagevo.planning.footprint import SAME_SHAPE, shape_mismatch

    if (why := shape_mismatch(config)) is not None:
        raise ConfigError(why, hint=SAME_SHAPE)

    rounds, hardware = max(config.round.rounds - played, 0), config.hardware
    on = " on a Ray cluster" if hardware.cluster == "ray" else ""
    trained = f"{hardware.processes} × {hardware.device}{on}"
    if hardware.colocate_vllm:
        trained += f", which train and sample in turns; vLLM has {hardware.vllm_memory:.0%} of each"
    known = all(row["seconds"] is not None for row in rows)
    begins = 0.0 if played else measured.get(WARM_START, 0.0) + measured.get(BASE, 0.0)
    each = sum(row["seconds"] or 0.0 for row in rows) + measured.get(VALIDATION, 0.0)
    return {
        "rounds": rounds,
        "completions": rounds * sum(row["completions"] for row in rows),
        "calls": rounds * sum(row["calls"] for row in rows),
        "disk_bytes": disk_bytes(config),
        "devices": trained,
        "memory": _on_gpus(config),
        "cpu": _on_cpu(config),
        "seconds": begins + rounds * each if known else None,
    }


def _placed(config: "Config") -> dict[str, str]:
    """The run's places on the cluster as it is now. ConfigError where it cannot start."""
    from diagevo.config.resources import describe_bundles, describe_nodes, on_gpus, rank_bundles, refusal
    from diagevo.errors import ConfigError, DiagEvoError
    from diagevo.sampling.cluster import connected, nodes_of

    hardware = config.hardware
    if hardware.cluster != "ray":
        return {}
    try:
        nodes = nodes_of(connected())
    except DiagEvoError as error:  # also without Ray: the rest of the plan is known
        return {"cluster": f"not known: {error.message}"}
    found = describe_nodes(nodes) or "no nodes"
    if (refused := refusal(hardware, nodes)) is not None:
        raise ConfigError(f"{refused[0]} ({found})", hint=refused[1])
    places = rank_bundles(hardware, nodes)
    idle = sum(node.gpus for node in nodes) - sum(place.get("GPU", 0) for place in places)
    spare = f", {idle} GPUs idle" if on_gpus(hardware, nodes) and idle else ""
    return {"cluster": found, "ranks": f"{describe_bundles(places)}{spare}"}


def _on_gpus(config: "Config") -> dict[str, Any] | None:
    """Stages with the bytes of their parts on a GPU; by card whether it fits. None where none is used."""
    from diagevo.config.resources import mean_tokens
    from diagevo.planning.footprint import (
        CARDS,
        card_for,
        gpu_memory_plan,
        host_memory_bytes,
        memory_advice,
        shapes_of,
    )
    from diagevo.planning.on_gpus import spans

    if config.hardware.device != "cuda":
        return None
    shapes = shapes_of(config)
    if shapes is None:
        return {"card": None, "stages": [], "fits": {}, "round": []}
    found = gpu_memory_plan(config, *shapes)
    fits = {card: all(load.fits(size) for load in found) for card, size in CARDS.items()}
    card = card_for(found) or 80
    ranks = config.hardware.fsdp_size or config.hardware.processes
    few = {str(each): _few(found, CARDS[each]) for each, fit in fits.items() if fit}
    return {
        "card": card,
        "mean": mean_tokens(config.sampling),
        "stages": [_stage(load, CARDS[card]) for load in found],
        "fits": {str(card): fit for card, fit in fits.items()},
        "less": memory_advice(config),
        "few_at_once": {card: words for card, words in few.items() if words},
        "round": [
            {"part": span.part, "minutes": span.seconds / 60}
            for span in (
                spans(config, found, card, shapes[1], shapes[2], _validated(config))
                if config.hardware.colocate_vllm
                else ()
            )
        ],
        "host_ranks": ranks,
        "host_bytes": host_memory_bytes(config, *shapes[:2], ranks),
    }


def _stage(load: "Load", card: float) -> dict[str, Any]:
    engines = [
        {
            "name": e.name,
            "bytes": int(e.share * card),
            "cache_tokens": e.tokens(card),
            "answers_at_once": e.answers(card),
        }
        for e in load.engines
    ]
    return {
        "stage": load.stage,
        "gpus": list(load.gpus),
        "placed": load.placed,
        "peak_bytes": load.peak(card),
        "parts": {name: size for name, size in load.parts.items() if size},
        "engines": engines,
    }


def _few(found: "Sequence[Load]", card: float) -> str | None:
    """The first stage in which an engine on such a card decodes few answers at once."""
    engines = ((load.stage, engine.more(card)) for load in found for engine in load.engines)
    return next((f"{stage}: {words}" for stage, words in engines if words is not None), None)


def _gpu_peak(stage: dict[str, Any]) -> dict[str, Any]:
    """A stage as people read it."""
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
    """On which cards that fits, and what to change for the others."""
    from diagevo.planning.disk import gigabytes

    if memory["card"] is None:
        return ["memory        unknown: no config.json of the models is here; download them first"]
    yes = [card for card, fit in memory["fits"].items() if fit]
    no = [card for card, fit in memory["fits"].items() if not fit]
    words = f"GPUs of {', '.join(yes)} GB" if yes else "none of the cards known here"
    without = f"; not of {', '.join(no)}" if yes and no else ""
    few = [f"few at once   of {card} GB: {words}" for card, words in memory["few_at_once"].items()]
    ranks = memory["host_ranks"]
    processes = "a training process" if ranks == 1 else f"{ranks} training processes"
    host_memory_bytes = f"{gigabytes(memory['host_bytes'])} of a machine's memory for {processes}"
    fits = [f"fits          {words}{without}", *([f"to use less   {memory['less']}"] if no else []), *few]
    return [*fits, f"host          {host_memory_bytes}"]


def _on_cpu(config: "Config") -> dict[str, Any] | None:
    """What a run on a CPU holds at its fullest, and how long it may take. None where a GPU may train, several
    processes do, or the model is not here."""
    from diagevo.planning.on_cpu import pace, peaks, seconds
    from diagevo.planning.shapes import find_shape

    hardware, shape = config.hardware, find_shape(config.roles.solver.model)
    if hardware.device != "cpu" or hardware.processes > 1 or hardware.cluster == "ray" or shape is None:
        return None
    before, each = seconds(config, shape, pace(), _validated(config))
    return {
        "peaks": [
            {"stage": peak.stage, "bytes": peak.size, "parts": peak.parts} for peak in peaks(config, shape)
        ],
        "machine_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "first_seconds": before,
        "round_seconds": each,
    }


def _validated(config: "Config") -> int:
    """Questions of the validation set, as far as they follow from the configuration."""
    from diagevo.arithmetic import held_out

    settings = config.validation
    if settings.questions is None:
        return 0
    whole = len(held_out()) if settings.questions == "builtin:arithmetic" else 0
    return min(whole, settings.limit or whole) if whole else settings.limit or 0


def _cpu_fit(cpu: dict[str, Any]) -> str:
    """Whether this machine has that much, and what takes less."""
    most = max((peak["bytes"] for peak in cpu["peaks"]), default=0)
    here = f"{_gb(cpu['machine_bytes'])} GB here"
    if most < cpu["machine_bytes"]:
        return f"{_gb(most)} of {here}"
    memory_advice = (
        "lower micro_batch of warm_start, challenger_grpo and solver_grpo, or hardware.rows_at_once"
    )
    return f"not: {_gb(most)} GB, {here}; {memory_advice}"


def numbered(gpus: Sequence[int]) -> str:
    """As people write them: 0-3, 6."""
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
    """What the time of a round on GPUs rests on."""
    from diagevo.planning.on_gpus import COPY, DECODING, DISK, FAST, LINKS, READING, SENDING, TRAINING

    name, bandwidth, operations = FAST[card]
    held = "" if _validated(config) or config.validation.questions is None else "; validation is not counted"
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
        each = 60 * sum(part["minutes"] for part in memory["round"])
        return f"about {_hours(rounds * each)}: {_hours(each)} a round; {unknown}"
    if cpu is None:
        return f"not known: {unknown}"
    before, each = 0 if played else cpu["first_seconds"], cpu["round_seconds"]
    begins = f"{_hours(before)} before round 1, " if before else ""
    return f"at most about {_hours(before + rounds * each)}: {begins}{_hours(each)} a round; {unknown}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1, round(seconds / 60))} min"
