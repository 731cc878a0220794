"""TRL's GRPOTrainer as it is, keeping a memory of causes, and steered by it where its prompts are drawn here.

`capture` goes around the reward function and `RoundCallback` plays the rounds: with a data set of the user's
own the memory observes. With `prompts` as the data set it steers: `render` writes the row of a draw, which is
free, targeted at a cause, or stitched. Every rank draws the same prompts and computes the rewards of its own;
rank 0 gathers them and alone writes the memory.

Nothing that the memory or the diagnostician raises ends the training: it is logged once, with the next step.
"""

import inspect
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from datasets import IterableDataset
from torch.utils.data import WeightedRandomSampler
from transformers import TrainerCallback

from diagevo.config.models import DiagnosisConfig, IngestConfig, MemoryConfig
from diagevo.diagnosis.diagnostician import Diagnostician
from diagevo.diagnosis.embedder import Embedder
from diagevo.errors import ConfigError, DiagEvoError
from diagevo.ingest.dataset import PromptDataset
from diagevo.ingest.formats import messages
from diagevo.ingest.recording import events_of
from diagevo.ingest.rollouts import RolloutGroup
from diagevo.ingest.rounds import Rounds
from diagevo.ingest.weights import weigh
from diagevo.memory.events import GroupDraw, GroupIngested
from diagevo.memory.log.location import shown
from diagevo.memory.memory import Memory
from diagevo.memory.state.schedule import Draw, Schedule
from diagevo.text.redaction import masked

COLUMN = "diagevo_draw"
"""The column that carries a prompt's draw from the data set to the reward function."""
BLOCK = 64
"""Draws made at a time."""
HELD = 20_000
"""Rollouts that are kept while the memory takes none; of more the oldest steps are lost."""

Render = Callable[[Draw], dict[str, Any]]
Row = tuple[str, str, float | None, str | None]
"""A completion: its prompt, its text, its reward (None: nothing to say) and the draw of its prompt."""

_logger = logging.getLogger(__name__)

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


def sampler(memory: Memory, dataset: Sequence[dict[str, Any]]) -> WeightedRandomSampler:
    """A sampler over a data set that was rolled out before: Equation 2 as of the last commit.

    For a `DataLoader`, or what draws rows one by one. GRPOTrainer has a sampler of its own, which repeats
    each prompt: there, `dataset.select(list(sampler(memory, dataset)))` is the next epoch.

    Args:
        memory: Of the run that recorded the rollouts.
        dataset: Rows with `prompt`, `question`, `problem`, `input` or `messages`.

    Returns:
        A sampler of as many rows as the data set has, with replacement; the run's seed and round seed it.

    Raises:
        ConfigError: A row has no prompt, or no prompt was ever rolled out.
    """
    schedule, found = memory.schedule(memory.state.round + 1), PromptDataset.of(dataset, "the data set")
    weighed = weigh(memory.log, memory.state, schedule, found)
    generator = torch.Generator().manual_seed(memory.state.settings.seed * 1_000_003 + schedule.round)
    shares = [float(each.weight) for each in weighed.prompts]
    return WeightedRandomSampler(shares, len(shares), generator=generator)


class Captured:
    """A reward function that keeps what it rewarded. Made by `capture`."""

    def __init__(self, reward_func: Callable[..., Sequence[float | None]]) -> None:
        called = getattr(reward_func, "__call__", None)  # noqa: B004  (an object's own may be a coroutine)
        if inspect.iscoroutinefunction(reward_func) or inspect.iscoroutinefunction(called):
            raise ConfigError(
                "an async reward function cannot be captured: the ranks would mix up each other's rollouts",
                hint="capture a synchronous one",
            )
        self.reward_func = reward_func
        self.__name__ = getattr(reward_func, "__name__", type(reward_func).__name__)
        self.model: Any = None
        """The trainer's. TRL itself tells a training's batch from an evaluation's by its mode."""
        self.group_size = 1
        self.groups: dict[int, list[RolloutGroup]] = {}
        """By step, of all ranks, on rank 0; nothing elsewhere."""
        self.trained = False
        """Whether it ever rewarded a training's batch."""

    def __call__(self, prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        rewards = list(self.reward_func(prompts=prompts, completions=completions, **columns))
        if self.model is None or not self.model.training:
            return rewards
        self.trained = True
        draws = columns.get(COLUMN) or [None] * len(prompts)
        rows: list[Row] = [
            (_text(prompt), _text(completion), None if reward is None else float(reward), draw)
            for prompt, completion, reward, draw in zip(prompts, completions, rewards, draws, strict=True)
        ]
        gathered = gather_object(rows)
        if PartialState().is_main_process:
            step = columns["trainer_state"].global_step + 1
            self.groups.setdefault(step, []).extend(_grouped(gathered, self.group_size))
        return rewards


def capture(reward_func: Callable[..., Sequence[float | None]]) -> Captured:
    """The reward function, remembered: what it rewards in training is gathered from every rank."""
    return Captured(reward_func)


def _text(said: Any) -> str:
    try:
        return messages(said)
    except ConfigError:  # TRL takes it, so it is no reason to end a training
        return str(said)


def _grouped(rows: Sequence[Row], size: int) -> list[RolloutGroup]:
    """Groups as TRL's advantages have them: `size` completions in a row answer one prompt. So a prompt that
    is twice in a batch is two groups. A reward that is None or not finite is no reward."""
    groups: dict[tuple[int, str, str | None], RolloutGroup] = {}
    for place, (prompt, completion, reward, draw) in enumerate(rows):
        if reward is None or not math.isfinite(reward):
            continue
        group = groups.setdefault((place // size, prompt, draw), RolloutGroup(prompt, None, draw=_draw(draw)))
        group.responses.append(completion)
        group.rewards.append(reward)
    return list(groups.values())


def _draw(column: str | None) -> GroupDraw | None:
    if column is None:
        return None
    told = json.loads(column)
    return GroupDraw(**{name: told[name] for name in GroupDraw.__struct_fields__})


class RoundCallback(TrainerCallback):
    """Records every step's groups; after every `steps` optimizer steps diagnoses what failed and commits the
    round. Where the memory drew the prompts, draws on by the new schedule. Rank 0 writes; the others wait
    for the schedule. Groups of a round that cannot be diagnosed now are in the log, and wait."""

    def __init__(
        self,
        memory: Memory,
        captured: Captured,
        diagnostician: Diagnostician,
        embedder: Embedder,
        *,
        steps: int,
    ) -> None:
        if steps < 1:
            raise ConfigError(f"steps={steps}: a round has one optimizer step or more", hint="write: steps=8")
        self.memory = memory
        self.captured = captured
        self.diagnostician = diagnostician
        self.embedder = embedder
        self.steps = steps
        self._recorded: tuple[int, int] | None = None
        """The last recorded step and its round; None: not read yet."""
        self._failing: set[str] = set()
        """What was warned of, and has not gone well since."""

    def on_init_end(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        """Refuse what cannot be steered, before anything is drawn."""
        if args.shuffle_dataset and _draws(self.memory):
            raise ConfigError(
                "shuffle_dataset draws 1,000 prompts by the first schedule before the first reward",
                hint="write: GRPOConfig(..., shuffle_dataset=False)",
            )
        self.captured.group_size = args.num_generations
        self.captured.model = model

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        self.captured.model = model  # sharding wraps it anew
        if state.is_world_process_zero:
            self._attempt("recorded", lambda: self._say_what_is_recorded(state.global_step))
            if self.memory.state.open is not None:  # a round that was interrupted
                self._attempt("diagnosed", lambda: self._diagnose(args))
        self._agree()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        whole = state.global_step % self.steps == 0
        if state.is_world_process_zero:
            if not self.captured.trained:
                self._warn("captured", "no reward is captured", "write: reward_funcs=the captured function")
            if whole or "recorded" not in self._failing:  # a locked database makes each attempt wait
                self._attempt("recorded", self._record)
            if whole and "recorded" not in self._failing:
                self._attempt("diagnosed", lambda: self._close(args, state.global_step))
        if whole:
            self._agree()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The last round may be a shorter one: epochs do not end with a round."""
        if state.is_world_process_zero:
            self._attempt("recorded", self._record)
            self._attempt("diagnosed", lambda: self._diagnose(args))
            if lost := self.captured.groups:
                _logger.warning("not recorded, and lost with this process: step %s", _listed(lost))

    def _say_what_is_recorded(self, step: int) -> None:
        last, _ = self._last_recorded()
        if last > step:
            _logger.warning(
                "run %s holds rollouts up to step %d, and this training resumes from step %d: "
                "steps up to there are not recorded again. Training from scratch? Name another "
                "run: diagevo.open(…, NAME)",
                self.memory.run_id,
                last,
                step,
            )

    def _last_recorded(self) -> tuple[int, int]:
        """The last step in the log, and its round."""
        if self._recorded is None:
            types = ["GroupIngested"]
            found = self.memory.log.read(self.memory.run_id, types=types, newest_first=True, limit=1)
            newest = next(found, None)
            if newest is None:
                return 0, 0
            assert isinstance(newest.event, GroupIngested)
            self._recorded = newest.event.step, newest.round
        return self._recorded

    def _record(self) -> None:
        """Each captured step in a transaction of its own. One that is in the log from before the training
        was resumed stays as it is."""
        settings = IngestConfig.model_validate(self.memory.config.get("ingest", {}))
        waiting = self.captured.groups
        while sum(len(group.rewards) for groups in waiting.values() for group in groups) > HELD:
            waiting.pop(lost := min(waiting))
            _logger.warning("the rollouts of step %d could not be recorded, and are lost", lost)
        for step in sorted(waiting):
            last, _ = self._last_recorded()
            if step > last and waiting[step]:
                round_ = self._round_of(step)
                with self.memory.atomic():
                    artifacts, groups = self.memory.artifacts, waiting[step]
                    self.memory.ingested(events_of(artifacts, step, "TRL", groups, settings.pass_at), round_)
                self._recorded = step, round_
            del waiting[step]

    def _round_of(self, step: int) -> int:
        """Steps of one block of `steps` make a round, none that was ever opened. Rounds that were superseded
        are counted anew (`state.batch`)."""
        last, round_ = self._last_recorded()
        first = self.memory.state.next_batch
        return max(first, round_ if (last - 1) // self.steps == (step - 1) // self.steps else round_ + 1)

    def _close(self, args: Any, step: int) -> None:
        """The round that ends with this step. One that a resumed training plays again has ended before."""
        if step >= self._last_recorded()[0]:
            self._diagnose(args)

    def _diagnose(self, args: Any) -> None:
        """All that waits. Ranks that wait for this one give it up after `ddp_timeout` seconds: it stops
        before, and goes on after the next round."""
        until = time.monotonic() + (args.ddp_timeout / 2 if args.world_size > 1 else math.inf)
        Rounds(self.memory).diagnose(
            self.diagnostician,
            self.embedder,
            DiagnosisConfig.model_validate(self.memory.config.get("diagnosis", {})),
            MemoryConfig.model_validate(self.memory.config.get("memory", {})),
            should_stop=lambda: time.monotonic() > until,
        )

    def _attempt(self, what: str, work: Callable[[], None]) -> None:
        """Do it; what goes wrong is logged. Nothing here is worth somebody's training, whatever it raises."""
        try:
            work()
        except Exception as error:  # as the docstring says: a training goes on
            again = f"diagevo diagnose --run {self.memory.run_id} --db {shown(self.memory.database.url)}"
            steps = {
                "recorded": f"up to {HELD:,} rollouts are kept, and recorded as soon as possible",
                "diagnosed": f"rounds wait and are retried after every {self.steps} steps; or later: {again}",
            }
            self._warn(what, f"rollouts cannot be {what} now: {_told(error)}", steps[what], error)
        else:
            self._failing.discard(what)

    def _warn(self, what: str, wrong: str, next_step: str, error: Exception | None = None) -> None:
        """Once, until it has gone well again."""
        if what not in self._failing:
            self._failing.add(what)
            trace = None if error is None or isinstance(error, DiagEvoError) else error
            _logger.warning("%s. The training continues; %s", wrong, next_step, exc_info=trace)

    def _agree(self) -> None:
        """Every rank draws by the schedule that rank 0 has."""
        if _draws(self.memory):
            schedule = [self.memory.schedule(self.memory.state.round + 1)]
            _schedules[self.memory] = broadcast_object_list(schedule)[0]


def _draws(memory: Memory) -> bool:
    """Whether prompts are drawn from this memory."""
    return any(drawn_from is memory for drawn_from, _ in _streams.values())


def _told(error: Exception) -> str:
    return error.message if isinstance(error, DiagEvoError) else masked(f"{type(error).__name__}: {error}")


def _listed(steps: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(steps)))
