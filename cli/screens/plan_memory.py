"""The part of `train --plan` that says what each GPU holds, on which cards that fits, and what to change."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..render.table import Column, columns

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.training.footprint import Load

COLUMNS = columns("stage, gpus: GPUs, peak: GB, parts: of it")


def memory_of(config: "Config") -> dict[str, Any] | None:
    """As data: stages with the bytes of their parts; by card whether it fits."""
    from diagevo.config.serving import mean_tokens
    from diagevo.training.footprint import CARDS, card_for, host, loads, shapes_of

    if config.hardware.device != "cuda":
        return None
    shapes = shapes_of(config)
    if shapes is None:
        return {"card": None, "stages": [], "fits": {}}
    found = loads(config, *shapes)
    fits = {card: all(load.fits(size) for load in found) for card, size in CARDS.items()}
    card = card_for(found) or 80
    return {
        "card": card,
        "mean": mean_tokens(config.sampling),
        "stages": [_stage(load, CARDS[card]) for load in found],
        "fits": {str(card): fit for card, fit in fits.items()},
        "few_at_once": {str(card): few for card, fit in fits.items() if fit and (few := _few(found, card))},
        "host_bytes": host(config, *shapes[:2]),
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
    heading = f"memory of a GPU of {memory['card']} GB at its peak; answers are of {memory['mean']} tokens:"
    return heading, COLUMNS, rows


def memory_lines(memory: dict[str, Any]) -> list[str]:
    """On which cards that fits, and what to change for the others."""
    from diagevo.training.disk import gigabytes
    from diagevo.training.footprint import LESS

    if memory["card"] is None:
        return ["memory        unknown: no config.json of the models is here; download them first"]
    yes = [card for card, fit in memory["fits"].items() if fit]
    no = [card for card, fit in memory["fits"].items() if not fit]
    said = f"GPUs of {', '.join(yes)} GB" if yes else "no card listed here"
    without = f"; not of {', '.join(no)}" if yes and no else ""
    few = [f"few at once   of {card} GB: {said}" for card, said in memory["few_at_once"].items()]
    rank = f"{gigabytes(memory['host_bytes'])} of the machine's memory for each training process of it"
    fits = [f"fits          {said}{without}", *([f"to fit less   {LESS}"] if no else []), *few]
    return [*fits, f"host          {rank}"]


def _few(found: "Sequence[Load]", card: int) -> str | None:
    """The first stage in which an engine on such a card decodes few answers at once."""
    from diagevo.training.footprint import CARDS

    told = (
        f"{load.stage}: {said}"
        for load in found
        for engine in load.engines
        if (said := engine.more(CARDS[card])) is not None
    )
    return next(told, None)


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
    return numbered(stage["gpus"]) or "one more"


def numbered(gpus: Sequence[int]) -> str:
    """As people write them: 0-3, 6."""
    runs: list[list[int]] = []
    for gpu in gpus:
        if runs and gpu == runs[-1][-1] + 1:
            runs[-1].append(gpu)
        else:
            runs.append([gpu])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _part(part: tuple[str, int]) -> str:
    name, size = part
    return f"{name} {size / 1e9:.1f}"


def _engine(engine: dict[str, Any]) -> str:
    tokens = engine["cache_tokens"] // 1000
    cache = f"{tokens:,}k tokens of cache, {engine['answers_at_once']} answers at once"
    return f"{engine['name']} {engine['bytes'] / 1e9:.1f} with {cache}"
