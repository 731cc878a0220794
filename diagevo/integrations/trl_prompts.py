"""Prompts that follow a memory's schedule: written for a draw, or recurring rows of a data set.

Every rank draws the same prompts, by the schedule that rank 0 shares with the others.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from itertools import count
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from datasets import IterableDataset
from torch.utils.data import WeightedRandomSampler

from diagevo.ingest.dataset import PromptDataset
from diagevo.ingest.weights import Weighed, weigh
from diagevo.memory.memory import Memory
from diagevo.memory.state.projected_schedule import Draw, Schedule

COLUMN = "diagevo_draw"
"""The column that carries a prompt's draw through the trainer."""
BLOCK = 64
"""Draws made at a time."""

Row = dict[str, Any]
Render = Callable[[Draw], Row]

_schedules: "WeakKeyDictionary[Memory, Schedule]" = WeakKeyDictionary()
"""The schedule that all ranks agreed on, by memory."""
_streams: "dict[int, tuple[Memory, Render]]" = {}
_numbers = count()


def prompts(memory: Memory, source: Render | Iterable[Any]) -> IterableDataset:
    """An endless data set that follows the schedule: ε and p as committed in the round before.

    Args:
        memory: The one that the training's `RoundCallback` keeps.
        source: The training's own data set, from which rows that aim at the draw's cause are taken; or a
            function that writes a row for a draw. A row has `prompt` and whatever else a reward reads.

    Returns:
        The `train_dataset` of a trainer with `shuffle_dataset=False`.

    Raises:
        ConfigError: A row has no prompt.
    """
    number = next(_numbers)
    _streams[number] = memory, source if callable(source) else _Rows(memory, source)
    return IterableDataset.from_generator(_rows, gen_kwargs={"number": number})  # its arguments are pickled


def sampler(memory: Memory, dataset: Iterable[Any]) -> WeightedRandomSampler:
    """A sampler over a data set with earlier rollouts: Equation 2 as of the last commit.

    For a `DataLoader`, or anything that draws rows one by one. GRPOTrainer has its own sampler, which repeats
    each prompt: there, `train_dataset=prompts(memory, dataset)` follows the schedule from round to round.

    Args:
        memory: The memory of the run that recorded the rollouts.
        dataset: Rows with `prompt`, `question`, `problem`, `input` or `messages`.

    Returns:
        A sampler that draws as many rows as the data set has, with replacement; the run's seed and round seed
        it.

    Raises:
        ConfigError: A row has no prompt, or no prompt was ever rolled out.
    """
    schedule = _next(memory)
    weighed = _weighed(memory, schedule, PromptDataset.of(dataset, "the data set"))
    generator = torch.Generator().manual_seed(memory.state.settings.seed * 1_000_003 + schedule.round)
    shares = [float(each.weight) for each in weighed.rows]
    return WeightedRandomSampler(shares, len(shares), generator=generator)


class _Rows:
    """A row for a draw: one that aims at its cause, as in `weigh`; any row if none does or the draw is
    free."""

    def __init__(self, memory: Memory, dataset: Iterable[Any]) -> None:
        self.dataset = PromptDataset.of(dataset, "the data set")
        self.aiming: dict[str, list[int]] = {}
        """Row indices by the cause that they aim at, as all ranks agreed."""
        self._rng = Random(f"{memory.state.settings.seed}.rows")

    def __call__(self, draw: Draw) -> Row:
        places = self.aiming.get(draw.cause_id or "") or range(len(self.dataset.rows))
        return self.dataset.rows[places[self._rng.randrange(len(places))]]

    def aim(self, memory: Memory, schedule: Schedule) -> None:
        """Raises ConfigError if no row was rolled out although causes were found."""
        found: dict[str, list[int]] = {}
        if schedule.causes:
            for place, each in enumerate(_weighed(memory, schedule, self.dataset).rows):
                if each.cause is not None:
                    found.setdefault(each.cause, []).append(place)
        self.aiming = found


def _weighed(memory: Memory, schedule: Schedule, dataset: PromptDataset) -> Weighed:
    return weigh(memory.log, memory.state, schedule, dataset)


def _next(memory: Memory) -> Schedule:
    return memory.schedule(memory.state.round + 1)


def _rows(number: int) -> Iterator[Row]:
    memory, render = _streams[number]
    schedule, places = _schedule(memory), count()
    for block in count():
        for draw in schedule.draw(BLOCK, seed=memory.state.settings.seed + block):
            if _schedule(memory) is not schedule:
                break
            numbered = replace(draw, index=next(places))
            yield {**render(numbered), COLUMN: json.dumps({**asdict(numbered), "round": schedule.round})}
        if _schedule(memory) is not schedule:
            schedule, places = _schedule(memory), count()


def _schedule(memory: Memory) -> Schedule:
    if memory not in _schedules:
        _schedules[memory] = _next(memory)
    return _schedules[memory]


def drawn_from(memory: Memory) -> bool:
    return any(each is memory for each, _ in _streams.values())


def follow(memory: Memory) -> None:
    """Draw by the schedule of the last commit from now on. On rank 0; raises the memory's errors."""
    schedule = _next(memory)
    for rows in _banks(memory):
        rows.aim(memory, schedule)
    _schedules[memory] = schedule


def share(memory: Memory) -> None:
    """Every rank draws as rank 0 does."""
    banks = _banks(memory)
    own = PartialState().is_main_process
    shared: list[Any] = [(_schedule(memory), [rows.aiming for rows in banks]) if own else None]
    schedule, aiming = broadcast_object_list(shared)[0]
    if not own:
        _schedules[memory] = schedule
        for rows, found in zip(banks, aiming, strict=True):
            rows.aiming = found


def _banks(memory: Memory) -> list[_Rows]:
    return [rows for each, rows in _streams.values() if each is memory and isinstance(rows, _Rows)]
