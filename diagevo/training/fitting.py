"""On which cards a configuration fits, and which settings make it fit one. Pure."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from diagevo.config.models import Config
from diagevo.training.footprint import CARDS, Load, loads
from diagevo.training.shapes import Shape, find_shape

_SHARES = (0.5, 0.4, 0.3, 0.25, 0.2, 0.15)
_RANK = 32  # of adapters, where whole weights do not train


def shapes_of(config: Config) -> tuple[Shape, Shape, Shape | None] | None:
    """Challenger, solver, diagnostician; None where a policy's config.json is not here."""
    roles = config.roles
    challenger, solver = find_shape(roles.challenger.model), find_shape(roles.solver.model)
    if challenger is None or solver is None:
        return None
    return challenger, solver, find_shape(roles.diagnostician.model)


def fitting(found: list[Load]) -> dict[int, bool]:
    """Whether everything fits, by the GB that a card is sold with."""
    return {card: all(load.fits(size) for load in found) for card, size in CARDS.items()}


def advice(config: Config, shapes: tuple[Shape, Shape, Shape | None], card: float) -> list[str] | None:
    """Settings, as few as possible, with which everything fits a card of so many bytes; None: none do."""
    for change in _changes(config):
        if all(load.fits(card) for load in loads(_with(config, change), *shapes)):
            return [f"{key}={_written(value)}" for key, value in change.items()]
    return None


def _changes(config: Config) -> Iterator[dict[str, Any]]:
    """What may be changed without changing what is computed, fewest first; adapters and more GPUs last."""
    hardware, lora = config.hardware, config.training.lora
    alone = hardware.processes == 1 and hardware.accelerate_config is None
    micro = max(config.challenger_grpo.micro_batch, config.solver_grpo.micro_batch)
    ways: dict[str, list[Any]] = {"micro_batch": _halves(micro, 1)}
    if hardware.colocate_vllm:
        ways["hardware.vllm_memory"] = [s for s in _SHARES if s < hardware.vllm_memory]
    if hardware.serve == "vllm":
        ways["hardware.serve_memory"] = [s for s in _SHARES if s < hardware.serve_memory]
    if not (hardware.colocate_vllm and hardware.serve == "vllm"):
        ways["hardware.rows_at_once"] = _halves(hardware.rows_at_once, 8)
    if alone and lora is None:
        ways["training.lora"] = [_RANK]
    if lora is None:
        first = max(2, 2 * hardware.processes)
        ways["hardware.processes"] = [n for n in (2, 4, 8) if n >= first]
    choices = [list(enumerate([None, *values])) for values in ways.values()]
    for chosen in sorted(product(*choices), key=lambda chosen: _cost(list(ways), chosen)):
        change = {key: value for key, (_, value) in zip(ways, chosen, strict=True) if value is not None}
        if not change or {"training.lora", "hardware.processes"} <= change.keys():
            continue
        if (size := change.pop("micro_batch", None)) is not None:
            change |= {"challenger_grpo.micro_batch": size, "solver_grpo.micro_batch": size}
        if "hardware.processes" in change:
            change["hardware.accelerate_config"] = "fsdp"
        yield change


def _cost(keys: list[str], chosen: Sequence[tuple[int, Any]]) -> tuple[int, int]:
    """How many settings change, then how far. Adapters and more GPUs are another run, the rest is slower."""
    weight = {"training.lora": 100, "hardware.processes": 1000}
    steps = [step for step, _ in chosen]
    return sum(weight.get(key, 1) for key, step in zip(keys, steps, strict=True) if step), sum(steps)


def _halves(size: int, least: int) -> list[int]:
    halves = []
    while (size := size // 2) >= least:
        halves.append(size)
    return halves


def _with(config: Config, change: dict[str, Any]) -> Config:
    values = config.model_dump(mode="json")
    for key, value in change.items():
        section, name = key.split(".")
        values[section][name] = value
        if name == "processes":
            values["hardware"]["train_gpus"] = []
    return Config.model_validate(values)


def _written(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
