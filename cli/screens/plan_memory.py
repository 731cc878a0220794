"""The part of `train --plan` that says what each GPU holds, on which cards that fits, and what to change."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..render.table import Column

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.training.footprint import Load

COLUMNS = (
    Column("stage"),
    Column("gpus", "GPUs"),
    Column("peak", "GB", "right"),
    Column("parts", "of it"),
)


def memory_of(config: "Config") -> dict[str, Any] | None:
    """As data: stages with the bytes of their parts; by card whether it fits."""
    from diagevo.training.footprint import CARDS, loads, shapes_of

    if config.hardware.device != "cuda":
        return None
    shapes = shapes_of(config)
    if shapes is None:
        return {"card": None, "stages": [], "fits": {}}
    found = loads(config, *shapes)
    fits = {card: all(load.fits(size) for load in found) for card, size in CARDS.items()}
    card = next((card for card, fit in fits.items() if fit), 80)
    return {
        "card": card,
        "stages": [_stage(load, CARDS[card]) for load in found],
        "fits": {str(card): fit for card, fit in fits.items()},
    }


def memory_table(memory: dict[str, Any]) -> tuple[str, Sequence[Column], list[dict[str, Any]]]:
    """For people: a heading, columns and rows, a stage each."""
    rows = [
        {
            "stage": stage["stage"],
            "gpus": _whose(stage),
            "peak": f"{stage['peak_bytes'] / 1e9:.1f}",
            "parts": ", ".join([*map(_part, stage["parts"].items()), *map(_engine, stage["engines"])]),
        }
        for stage in memory["stages"]
    ]
    return f"memory of a GPU of {memory['card']} GB at its peak:", COLUMNS, rows


def memory_lines(memory: dict[str, Any]) -> list[str]:
    """On which cards that fits, and what to change for the others."""
    from diagevo.training.footprint import LESS

    if memory["card"] is None:
        return ["memory        unknown: no config.json of the models is here; download them first"]
    yes = [card for card, fit in memory["fits"].items() if fit]
    no = [card for card, fit in memory["fits"].items() if not fit]
    said = f"GPUs of {', '.join(yes)} GB" if yes else "no card listed here"
    without = f"; not of {', '.join(no)}" if yes and no else ""
    return [f"fits          {said}{without}", *([f"to fit less   {LESS}"] if no else [])]


def _stage(load: "Load", card: float) -> dict[str, Any]:
    engines = [
        {"name": e.name, "bytes": int(e.share * card), "cache_tokens": e.tokens(card)} for e in load.engines
    ]
    parts = {name: size for name, size in load.parts.items() if size}
    return {
        "stage": load.stage,
        "gpus": list(load.gpus),
        "placed": load.placed,
        "peak_bytes": load.peak(card),
        "parts": parts,
        "engines": engines,
    }


def _whose(stage: dict[str, Any]) -> str:
    if stage["placed"]:
        return f"each {stage['placed']}'s"
    return ", ".join(map(str, stage["gpus"])) or "one more"


def _part(part: tuple[str, int]) -> str:
    name, size = part
    return f"{name} {size / 1e9:.1f}"


def _engine(engine: dict[str, Any]) -> str:
    tokens = engine["cache_tokens"] // 1000
    return f"{engine['name']} {engine['bytes'] / 1e9:.1f} with {tokens:,}k tokens of cache"
