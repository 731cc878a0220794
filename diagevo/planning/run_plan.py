"""The resources of a run before it starts: work, memory, disk, cluster placement, time."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from diagevo.arithmetic import held_out
from diagevo.config.loading import of_run
from diagevo.config.models import Config
from diagevo.config.resources import (
    describe_bundles,
    describe_nodes,
    mean_tokens,
    on_gpus,
    rank_bundles,
    refusal,
    rounds_left,
    workload,
)
from diagevo.errors import ConfigError, DiagEvoError
from diagevo.memory.events import CheckpointEvaluated, StageCompleted
from diagevo.memory.history import History
from diagevo.planning.disk import disk_bytes
from diagevo.planning.footprint import (
    CARDS,
    SAME_SHAPE,
    Load,
    card_for,
    gpu_memory_plan,
    host_memory_bytes,
    low_concurrency,
    memory_advice,
    shape_mismatch,
    shapes_of,
)
from diagevo.planning.on_cpu import pace, peaks, seconds
from diagevo.planning.on_gpus import spans
from diagevo.planning.shapes import find_shape
from diagevo.progress import STAGES, VALIDATION, WARM_START
from diagevo.sampling.cluster import connected, nodes_of

_BASE = f"base model {VALIDATION}"
"""The validation before round 1."""


def plan_run(
    config: Config, measured: Mapping[str, float] = MappingProxyType({}), played: int = 0
) -> dict[str, Any]:
    """The plan of a run with this configuration, as printed by `diagevo train --plan --json`.

    Args:
        config: of the run.
        measured: seconds of its stages in an earlier run, as `measured_seconds` finds them.
        played: finished rounds: the plan covers those that are left.

    Raises:
        ConfigError: the models have different shapes, or the cluster has no room for the ranks.
    """
    if (why := shape_mismatch(config)) is not None:
        raise ConfigError(why, hint=SAME_SHAPE)
    stages = workload(config, measured)
    rounds, hardware = max(config.round.rounds - played, 0), config.hardware
    on = " on a Ray cluster" if hardware.cluster == "ray" else ""
    trained = f"{hardware.processes} × {hardware.device}{on}"
    if hardware.colocate_vllm:
        trained += f", which train and sample in turns; vLLM has {hardware.vllm_memory:.0%} of each"
    known = all(stage.seconds is not None for stage in stages)
    begins = 0.0 if played else measured.get(WARM_START, 0.0) + measured.get(_BASE, 0.0)
    spent = sum(rounds_left(config, work.stage, played) * (work.seconds or 0.0) for work in stages)
    spent += rounds * measured.get(VALIDATION, 0.0)
    return {
        "stages": list(map(asdict, stages)),
        "rounds": rounds,
        "completions": sum(rounds_left(config, work.stage, played) * work.completions for work in stages),
        "calls": sum(rounds_left(config, work.stage, played) * work.calls for work in stages),
        "disk_bytes": disk_bytes(config),
        "devices": trained,
        "memory": _on_gpus(config, played),
        "cpu": _on_cpu(config, played),
        "seconds": begins + spent if known else None,
        "placement": _placed(config),
    }


def measured_seconds(runs: Iterable[AbstractContextManager[History]], config: Config) -> dict[str, float]:
    """Mean seconds of each stage in the first of the runs with the same settings, whatever its seed and
    rounds; those of the warm start and of the base model's validation, which come before its rounds, too."""

    def alike(other: Config) -> Config:
        play = other.round.model_copy(update={"rounds": 1})
        return other.model_copy(
            update={"seed": 0, "validation": config.validation, "profile": "", "round": play}
        )

    for opening in runs:
        with opening as history:
            try:
                stored = of_run(history.configuration().config, history.run_id).config
            except ConfigError:  # another trainer's run
                continue
            if alike(stored) != alike(config):
                continue
            times = defaultdict[str, list[float]](list)
            for fact in history.events(StageCompleted, CheckpointEvaluated):
                match fact.event:
                    case StageCompleted(stage=name, seconds=float(taken)):
                        times[name].append(taken)
                    case CheckpointEvaluated(seconds=float(taken)) if stored.validation == config.validation:
                        times[VALIDATION if fact.round else _BASE].append(taken)
                    case _:
                        pass  # not measured
        if times.keys() & {*STAGES}:  # an imported run has the settings, but was not played here
            return {stage: sum(taken) / len(taken) for stage, taken in times.items()}
    return {}


def _placed(config: Config) -> dict[str, str]:
    """The run's placement on the current cluster. ConfigError if it cannot start."""
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


def _on_gpus(config: Config, played: int) -> dict[str, Any] | None:
    """Stages with the bytes of their parts on a GPU; by card whether it fits. None if no GPU is used."""
    if config.hardware.device != "cuda":
        return None
    shapes = shapes_of(config)
    if shapes is None:
        return {"card": None, "stages": [], "fits": {}, "round": []}
    found = gpu_memory_plan(config, *shapes)
    fits = {card: all(load.fits(size) for load in found) for card, size in CARDS.items()}
    card = card_for(found) or 80
    ranks = config.hardware.fsdp_size or config.hardware.processes
    questions = validation_questions(config)
    together = config.hardware.colocate_vllm
    round_ = spans(config, found, card, shapes[1], shapes[2], questions) if together else []
    few = {str(each): low_concurrency(found, CARDS[each]) for each, fit in fits.items() if fit}
    return {
        "card": card,
        "mean": mean_tokens(config.sampling),
        "stages": [_stage(load, CARDS[card]) for load in found],
        "fits": {str(card): fit for card, fit in fits.items()},
        "less": memory_advice(config),
        "few_at_once": {card: words for card, words in few.items() if words},
        "round": [
            {"part": span.part, "minutes": span.seconds / 60, "rounds": _rounds_of(config, span.part, played)}
            for span in round_
        ],
        "host_ranks": ranks,
        "host_bytes": host_memory_bytes(config, *shapes[:2], ranks),
    }


def _rounds_of(config: Config, part: str, played: int) -> int:
    if part == VALIDATION:
        return max(config.round.rounds - played, 0)
    return rounds_left(config, part.partition(":")[0], played)


def _stage(load: Load, card: float) -> dict[str, Any]:
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


def _on_cpu(config: Config, played: int) -> dict[str, Any] | None:
    """The peak memory of a run on a CPU, and its maximum time. None if a GPU may train, several processes do,
    or the model is not here."""
    hardware, shape = config.hardware, find_shape(config.roles.solver.model)
    if hardware.device != "cpu" or hardware.processes > 1 or hardware.cluster == "ray" or shape is None:
        return None
    before, each = seconds(config, shape, pace(), validation_questions(config), played)
    return {
        "peaks": [
            {"stage": peak.stage, "bytes": peak.size, "parts": peak.parts} for peak in peaks(config, shape)
        ],
        "machine_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "first_seconds": before,
        "round_seconds": each,
    }


def validation_questions(config: Config) -> int:
    """Number of validation questions, as far as the configuration determines it."""
    settings = config.validation
    if settings.questions is None:
        return 0
    whole = len(held_out()) if settings.questions == "builtin:arithmetic" else 0
    return min(whole, settings.limit or whole) if whole else settings.limit or 0
