"""TRL's GRPOTrainer as it is, keeping a memory of causes and steered by it (the README has it in ten lines).

`prompts` is the data set, `capture` goes around the reward function, `RoundCallback` plays the rounds.
`render` writes the row of a draw: free, targeted at a cause, or stitched. Every rank draws the same prompts
and computes the rewards of its own; rank 0 gathers them and alone writes the memory.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from datasets import IterableDataset
from transformers import TrainerCallback

from diagevo.config.models import DiagnosisConfig, IngestConfig, MemoryConfig
from diagevo.diagnosis.diagnostician import Diagnostician
from diagevo.diagnosis.embedder import Embedder
from diagevo.errors import ConfigError
from diagevo.ingest.formats import messages
from diagevo.ingest.recording import events_of
from diagevo.ingest.rollouts import Group
from diagevo.ingest.rounds import Rounds, Scored
from diagevo.memory.memory import Memory
from diagevo.memory.state.schedule import Draw, Schedule

COLUMN = "diagevo_draw"
"""The column that carries a prompt's draw from the data set to the reward function."""
BLOCK = 64
"""Draws made at a time."""

Render = Callable[[Draw], dict[str, Any]]

_schedules: "WeakKeyDictionary[Memory, Schedule]" = WeakKeyDictionary()
"""The schedule that all ranks agreed on, by memory."""
_streams: dict[int, tuple[Memory, Render]] = {}
_numbers = count()


def prompts(memory: Memory, render: Render) -> IterableDataset:
    """An endless data set that follows the schedule: ε and p as committed in the round before.

    `render` gives a row with `prompt` and whatever else the reward function reads.
    """
    number = next(_numbers)
    _streams[number] = memory, render  # by number, because a data set's arguments are pickled
    return IterableDataset.from_generator(_rows, gen_kwargs={"number": number})


def _rows(number: int) -> Iterator[dict[str, Any]]:
    memory, render = _streams[number]
    schedule, places = _schedule(memory), count()
    for block in count():
        for draw in schedule.draw(BLOCK, seed=memory.state.settings.seed + block):
            if _schedule(memory) is not schedule:
                break
            told = {**asdict(draw), "index": next(places), "round": schedule.round}
            yield {**render(draw), COLUMN: json.dumps(told)}
        if _schedule(memory) is not schedule:
            schedule, places = _schedule(memory), count()


def _schedule(memory: Memory) -> Schedule:
    if memory not in _schedules:
        _schedules[memory] = memory.schedule(memory.state.round + 1)
    return _schedules[memory]


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rewarded completion: its step, the draw it answers, and what was said."""

    step: int
    draw: str
    prompt: str
    completion: str
    reward: float


class Captured:
    """A reward function that keeps what it rewarded. Made by `capture`."""

    def __init__(self, reward_func: Callable[..., Sequence[float | None]]) -> None:
        if asyncio.iscoroutinefunction(reward_func):
            raise ConfigError(
                "an async reward function cannot be captured: the ranks would mix up each other's rollouts",
                hint="capture a synchronous one",
            )
        self.reward_func = reward_func
        self.__name__ = getattr(reward_func, "__name__", type(reward_func).__name__)
        self.rollouts: list[Rollout] = []
        """Of all ranks, on rank 0; nothing elsewhere."""

    def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        rewards = list(self.reward_func(prompts=prompts, completions=completions, **columns))
        draws = columns.get(COLUMN)
        if draws is None:  # an evaluation's questions are nobody's draw
            return rewards
        step = columns["trainer_state"].global_step + 1
        rows = [
            Rollout(step, draw, messages(prompt), messages(completion), float(reward))
            for draw, prompt, completion, reward in zip(draws, prompts, completions, rewards, strict=True)
            if reward is not None
        ]
        gathered = gather_object(rows)
        if PartialState().is_main_process:
            self.rollouts += gathered
        return rewards


def capture(reward_func: Callable[..., Sequence[float | None]]) -> Captured:
    """The reward function, remembered: rewards are gathered from every rank. For prompts of `prompts`."""
    return Captured(reward_func)


class RoundCallback(TrainerCallback):
    """Every `steps` optimizer steps: score what was captured, diagnose what failed, commit, and draw on by
    the new schedule. Rank 0 writes; the others wait for the schedule."""

    def __init__(
        self,
        memory: Memory,
        captured: Captured,
        diagnostician: Diagnostician,
        embedder: Embedder,
        *,
        steps: int,
    ) -> None:
        self.memory = memory
        self.captured = captured
        self.diagnostician = diagnostician
        self.embedder = embedder
        self.steps = steps

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Refuse what cannot be steered, before anything is drawn."""
        if args.shuffle_dataset:
            raise ConfigError(
                "shuffle_dataset draws 1,000 prompts by the first schedule before the first reward",
                hint="write: GRPOConfig(..., shuffle_dataset=False)",
            )
        if args.max_steps <= 0 or args.max_steps % self.steps:
            whole = -(-max(args.max_steps, 1) // self.steps) * self.steps
            raise ConfigError(
                f"max_steps={args.max_steps} is not a number of whole rounds of {self.steps} steps",
                hint=f"write: GRPOConfig(..., max_steps={whole})",
            )

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero and self.memory.state.open is not None:
            self._diagnose()  # a round that was interrupted
        self._agree()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        round_, rest = divmod(state.global_step, self.steps)
        if rest:
            return
        if state.is_world_process_zero:
            self._play(round_)
        self._agree()

    def _play(self, number: int) -> None:
        """A round from what was captured since the last one. One that is committed already, before training
        was resumed from an earlier checkpoint, counts no more."""
        first = (number - 1) * self.steps
        rollouts = [r for r in self.captured.rollouts if r.step > first]
        self.captured.rollouts.clear()
        if number != self.memory.state.round + 1:
            return
        settings = IngestConfig.model_validate((self.memory.state.config or {}).get("ingest", {}))
        scored: list[Scored] = []
        with self.memory.atomic():
            for step in sorted({rollout.step for rollout in rollouts}):
                groups: dict[str, Group] = {}
                for rollout in rollouts:
                    if rollout.step == step:
                        group = groups.setdefault(rollout.draw, Group(rollout.prompt, None))
                        group.responses.append(rollout.completion)
                        group.rewards.append(rollout.reward)
                events = events_of(
                    self.memory.artifacts, step, "TRL", list(groups.values()), settings.pass_at
                )
                self.memory.ingested(events, number)
                scored += [
                    Scored(event, json.loads(draw)) for event, draw in zip(events, groups, strict=True)
                ]
            Rounds(self.memory).play(number, scored)
        self._diagnose()

    def _diagnose(self) -> None:
        config = self.memory.state.config or {}
        Rounds(self.memory).diagnose(
            self.diagnostician,
            self.embedder,
            DiagnosisConfig.model_validate(config.get("diagnosis", {})),
            MemoryConfig.model_validate(config.get("memory", {})),
        )

    def _agree(self) -> None:
        """Every rank draws by the schedule that rank 0 has."""
        schedule = [self.memory.schedule(self.memory.state.round + 1)]
        _schedules[self.memory] = broadcast_object_list(schedule)[0]
