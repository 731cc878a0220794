"""A memory of causes for TRL's unmodified GRPOTrainer and RLOOTrainer.

`RoundCallback` captures what the trainer rewards, on any data set, and runs the rounds. With `prompts` as the
data set the memory also steers (`trl_prompts.py`). Every rank computes its own rewards; rank 0 gathers them
and alone writes the memory. No error

of the memory or the diagnostician ends the training: it is logged once, with the next step.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object
from msgspec import structs
from pydantic import ValidationError
from transformers import TrainerCallback

from diagevo.config.loading import of_profile
from diagevo.config.models import Config, DiagnosisConfig, DiagnosticianRole, IngestConfig, MemoryConfig
from diagevo.diagnosis.chat import budget_of
from diagevo.diagnosis.diagnostician import Diagnostician
from diagevo.diagnosis.embedder import Embedder, embedder_for, identity
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.errors import ConfigError, DiagEvoError
from diagevo.ingest.formats.messages import messages
from diagevo.ingest.formats.rows import terms, total
from diagevo.ingest.recording import Bar, IngestSummary, Recorder, configure, events_of
from diagevo.ingest.rollout_steps import RolloutGroup, RolloutStep
from diagevo.ingest.rounds import Rounds
from diagevo.integrations.trl_prompts import COLUMN, drawn_from, follow, prompts, sampler, share
from diagevo.memory.events import GroupDraw, GroupIngested
from diagevo.memory.history import History
from diagevo.memory.log.location import shown
from diagevo.memory.memory import Memory
from diagevo.memory.read.round_figures import rounds
from diagevo.memory.state.vote_checks import PASS_AT
from diagevo.text.numbers import count
from diagevo.text.redaction import masked

__all__ = ["RoundCallback", "prompts", "sampler"]

HELD = 20_000
"""Maximum rollouts buffered while the memory cannot record; beyond that the oldest steps are lost."""

SOURCE = "TRL"
Answer = str | Callable[[Mapping[str, Any]], str | None]
Row = tuple[str, str, str | None, str | None]
"""A completion: its prompt, its text, the known answer and the draw of its prompt."""

_logger = logging.getLogger(__name__)


class _Observed:
    """What a trainer rewards in training, by step: of all ranks on rank 0, and nothing on the others."""

    def __init__(self, trainer: Any, reward: str | None, answer: Answer) -> None:
        try:
            self._rewards = trainer._calculate_rewards  # TRL has no public hook that sees them all
            functions: list[str] = trainer.reward_func_names
        except AttributeError:
            raise ConfigError(
                f"{type(trainer).__name__} is not a TRL trainer that rewards completions",
                hint="GRPOTrainer or RLOOTrainer, of TRL 1.16: pip install 'diagevo[train]'",
            ) from None
        if isinstance(self._rewards, _Observed):
            raise ConfigError(
                "this trainer has a RoundCallback already: each step would be recorded twice",
                hint="add one callback to each trainer; in a notebook, make the trainer in the same cell",
            )
        self._columns = _columns(functions, reward)
        self._answer = answer
        self.trainer = trainer
        self.groups: dict[int, list[RolloutGroup]] = {}
        trainer._calculate_rewards = self

    def __call__(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        """The rewards of all ranks, by completion and reward function."""
        rewards = self._rewards(inputs, prompts, completions, completion_ids_list)
        if self.trainer.model.training:  # TRL itself distinguishes training and evaluation batches by this
            rows: list[Row] = [
                (_text(prompt), _text(completion), self._known(row), row.get(COLUMN))
                for row, prompt, completion in zip(inputs, prompts, completions, strict=True)
            ]
            gathered = gather_object(rows)
            if PartialState().is_main_process:
                step = self.trainer.state.global_step + 1
                found = _grouped(gathered, self._chosen(rewards), self.trainer.num_generations)
                self.groups.setdefault(step, []).extend(found)
        return rewards

    def _known(self, row: Mapping[str, Any]) -> str | None:
        found = self._answer(row) if callable(self._answer) else row.get(self._answer)
        return None if found is None else str(found)

    def _chosen(self, rewards: Any) -> list[float | None]:
        """By completion, the reward from the functions that decide whether it is right; None if none of them
        gave one. A reward that is not finite counts as none."""
        return [
            total(
                (weight, value if math.isfinite(value := row[place]) else None)
                for weight, place in self._columns
            )
            for row in rewards.tolist()
        ]


def _columns(functions: Sequence[str], reward: str | None) -> list[tuple[float, int]]:
    """Weights and indices of the reward functions that decide whether a completion is right."""
    named = ", ".join(functions)
    if reward is None and len(functions) > 1:
        raise ConfigError(
            f"the trainer has {len(functions)} reward functions, whose sum need not say what passed: {named}",
            hint=f'name the one that does, or a sum: RoundCallback(…, reward="{functions[0]}")',
        )
    parts = [(1.0, functions[0])] if reward is None else terms(reward)
    for _, name in parts:
        if functions.count(name) != 1:
            found = "no reward function" if name not in functions else "several reward functions"
            raise ConfigError(f"the trainer has {found} {name!r}", hint=f"its functions are {named}")
    return [(weight, functions.index(name)) for weight, name in parts]


def _text(value: Any) -> str:
    try:
        return messages(value)
    except ConfigError:  # TRL accepts it, so it is no reason to end the training
        return str(value)


def _grouped(rows: Sequence[Row], rewards: Sequence[float | None], size: int) -> list[RolloutGroup]:
    """Groups as in TRL's advantages: `size` consecutive completions answer one prompt. So a prompt that
    appears twice in a batch is two groups."""
    groups: dict[tuple[int, str, str | None], RolloutGroup] = {}
    for place, ((prompt, completion, answer, draw), reward) in enumerate(zip(rows, rewards, strict=True)):
        if reward is None:
            continue
        key = place // size, prompt, draw
        group = groups.setdefault(key, RolloutGroup(prompt, answer, draw=_draw(draw)))
        group.responses.append(completion)
        group.rewards.append(reward)
    return list(groups.values())


def _draw(column: str | None) -> GroupDraw | None:
    if column is None:
        return None
    draw = json.loads(column)
    return GroupDraw(**{name: draw[name] for name in GroupDraw.__struct_fields__})


class RoundCallback(TrainerCallback):
    """Records every step's groups; after every `steps` optimizer steps, diagnoses the failures and commits
    the round. If the memory draws the prompts, it continues with the new schedule. Rank 0 writes; the others
    wait for the schedule. Groups of a round that cannot be diagnosed now are in the log, and wait.

        trainer.add_callback(RoundCallback(memory, trainer, model="M", base_url="http://127.0.0.1:8000/v1"))

    Args:
        memory: The memory of the run that records the rollouts.
        trainer: TRL's GRPOTrainer or RLOOTrainer, with any data set.
        reward: The name of the reward function that decides whether a completion is right, or a
            sum (`correct+0.1*brief`); may be omitted if the trainer has only one.
        pass_at: The lowest reward that passes (default: 0.5). While it must be wrong, because every
            reward is on one side of it or on another scale, nothing is recorded, with a warning.
        answer: The data set's column with the known answer, or a function of its row that returns it.
        model: The served model that diagnoses; the run remembers it, with `base_url`. If none was ever
            named, rounds wait for `diagevo diagnose`.
        base_url: Its OpenAI-compatible endpoint, ending in /v1.
        diagnostician: Your own, instead of a served model.
        embedder: Your own, instead of the configured one; `diagevo.open` names its identity.
        steps: Optimizer steps per round.

    Raises:
        ConfigError: The trainer rewards no completions, has a callback already, does not say which reward
            counts, or cannot be steered with this setup; the run's vectors are another embedder's, or it was
            recorded with other settings.
    """

    def __init__(
        self,
        memory: Memory,
        trainer: Any,
        *,
        reward: str | None = None,
        pass_at: float | None = None,
        answer: Answer = "answer",
        model: str | None = None,
        base_url: str | None = None,
        diagnostician: Diagnostician | None = None,
        embedder: Embedder | None = None,
        steps: int = 12,
    ) -> None:
        if steps < 1:
            raise ConfigError(f"steps={steps}: a round has one optimizer step or more", hint="write: steps=8")
        if (model or base_url) and diagnostician is not None:
            raise ConfigError("model and diagnostician are both given", hint="leave one out")
        if trainer.args.shuffle_dataset and drawn_from(memory):  # before anything is drawn
            raise ConfigError(
                "shuffle_dataset draws 1,000 prompts by the first schedule before the first reward",
                hint="write: GRPOConfig(..., shuffle_dataset=False)",
            )
        self.memory = memory
        self.diagnostician = diagnostician
        self.embedder = embedder
        self.steps = steps
        asked = {"reward": reward, "pass_at": pass_at}
        self._asked = {name: value for name, value in asked.items() if value is not None}
        stored = self._settings
        for name, value in self._asked.items():
            if memory.state.config is not None and getattr(stored, name) != value:
                raise ConfigError(
                    f"run {memory.run_id} was recorded with {name} = {getattr(stored, name)}, not {value}",
                    hint="leave it out, or record into another run: diagevo.open(…, NAME)",
                )
        self._observed = _Observed(trainer, reward or stored.reward, answer)
        self._bar = Bar(
            stored.pass_at if pass_at is None else pass_at,
            named=pass_at is not None or stored.pass_at != PASS_AT,
            option="RoundCallback(…, pass_at={})",
        )
        self._begun = 0
        """The step after which the training began; more than 0 if it was resumed."""
        self._held: int | None = None
        """The last step that the run held when the training began; None: not read yet."""
        self._recorded: tuple[int, int, int] | None = None
        """The last recorded step, its round and the training's attempt; None: not read yet."""
        self._failing: set[str] = set()
        """Warnings given, until the operation succeeds again."""
        if trainer.accelerator.is_main_process:
            self._configure(model, base_url)

    def _configure(self, model: str | None, base_url: str | None) -> None:
        """As `ingest` and `diagnose` do, so that they continue with the same settings."""
        memory = self.memory
        if self.embedder is not None and self.diagnostician is not None and not self._asked:
            if memory.names_embedder:
                memory.check_embedder(identity(self.embedder))
            return
        config = Config.model_validate(memory.config) if memory.config else of_profile("embedded").config
        if model or base_url:
            config = _asking(config, model, base_url)
        if self.embedder is None:
            self.embedder = embedder_for(config.roles.embedder)
        memory.check_embedder(identity(self.embedder))
        if memory.state.config is None:
            ingest = config.ingest.model_copy(update={"steps_per_round": self.steps, **self._asked})
            config = config.model_copy(update={"ingest": ingest})
            configure(memory, config, self.embedder)
        else:
            memory.reconfigure(config.model_dump(mode="json"))
        role = config.roles.diagnostician
        if self.diagnostician is None and role.engine == "openai":
            budget = budget_of(memory.log, memory.run_id, config.diagnosis)
            self.diagnostician = OpenAIDiagnostician(role, config.diagnosis, memory.artifacts, budget=budget)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self._begun, self._held = state.global_step, None
            self._attempt("recorded", self._begin)
            if self.memory.state.open is not None:  # a round that was interrupted
                self._attempt("diagnosed", lambda: self._diagnose(args))
        self._agree()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        whole = state.global_step % self.steps == 0
        if state.is_world_process_zero:
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
            if lost := self._observed.groups:
                _logger.warning(
                    "not recorded, and lost with this process: step %s", ", ".join(map(str, sorted(lost)))
                )
            self._attempt("diagnosed", self._log_progress)

    def _begin(self) -> None:
        """Raises ConfigError for a training that is not the run's: its steps would pass for later ones."""
        last, _, _ = self._last_recorded()
        if last and not self._begun:
            raise ConfigError(
                f"run {self.memory.run_id} holds the rollouts of a training up to step {last}, and this one"
                " begins from scratch",
                hint="record it in another run: diagevo.open(…, NAME)",
            )
        if last > self._begun:
            _logger.warning(
                "run %s holds rollouts up to step %d, and this training resumes from step %d: "
                "steps that it repeats are another attempt, and supersede the first",
                self.memory.run_id,
                last,
                self._begun,
            )
        self._held = last

    def _log_progress(self) -> None:
        """A warning, because Python shows it even if nobody has set up logging."""
        state = self.memory.state
        waiting = {number for number, _ in Rounds(self.memory).waiting()}
        if left := len(waiting) + (state.open is not None):
            _logger.warning("%s to diagnose: %s --local", count(left, "round"), self._command("diagnose"))
        elif state.round:
            _logger.warning("%s diagnosed: %s", count(state.round, "round"), self._command("memory show"))

    def _command(self, name: str) -> str:
        return f"diagevo {name} --run {self.memory.run_id} --db {shown(self.memory.database.url)}"

    def _last_recorded(self) -> tuple[int, int, int]:
        """The last step in the log, its round and its attempt."""
        if self._recorded is None:
            types = ["GroupIngested"]
            found = self.memory.log.read(self.memory.run_id, types=types, newest_first=True, limit=1)
            newest = next(found, None)
            if newest is None:
                return 0, 0, 1
            assert isinstance(newest.event, GroupIngested)
            self._recorded = newest.event.step, newest.round, newest.event.attempt
        return self._recorded

    @property
    def _settings(self) -> IngestConfig:
        return IngestConfig.model_validate(self.memory.config.get("ingest", {}))

    def _record(self) -> None:
        """Each captured step in its own transaction."""
        waiting = self._observed.groups
        while sum(len(group.rewards) for groups in waiting.values() for group in groups) > HELD:
            waiting.pop(lost := min(waiting))
            _logger.warning("the rollouts of step %d could not be recorded, and are lost", lost)
        if self._held is None:
            self._begin()
        bar = self._believed(waiting)
        for step in sorted(waiting):
            if waiting[step]:
                self._record_step(step, waiting[step])
            del waiting[step]
        self._bar = bar

    def _believed(self, waiting: Mapping[int, Sequence[RolloutGroup]]) -> Bar:
        """The pass threshold with the waiting rewards. Raises ConfigError if it is more likely wrong than
        right: then nothing is recorded, rather than something wrong."""
        bar = replace(self._bar)
        for group in (group for groups in waiting.values() for group in groups):
            bar.see(group.rewards, answered=group.answer is not None)
        if bar.rollouts:
            bar.refuse_far()
            if not bar.parts and not self._held:
                bar.one_sided()
        return bar

    def _record_step(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """A step already in the log is another attempt at it, unless it has the same rollouts."""
        memory, pass_at = self.memory, self._bar.pass_at
        last, _, attempt = self._last_recorded()
        if step > last:
            round_ = self._round_of(step)
            with memory.atomic():
                events = events_of(memory.artifacts.put_many, step, SOURCE, groups, pass_at)
                memory.ingested([structs.replace(event, attempt=attempt) for event in events], round_)
            self._recorded = step, round_, attempt
            return
        with memory.atomic():
            recorder = Recorder(memory, self._settings, resumed=True)
            recorder.take(RolloutStep(step, SOURCE, []), groups, IngestSummary())
        self._recorded = None

    def _round_of(self, step: int) -> int:
        """A block of `steps` steps makes a round, never one that is already open or committed.
        Superseded rounds are numbered again (`state.batch`)."""
        last, round_, _ = self._last_recorded()
        state = self.memory.state
        first = state.batch(state.last_opened + 1)
        return max(first, round_ if (last - 1) // self.steps == (step - 1) // self.steps else round_ + 1)

    def _close(self, args: Any, step: int) -> None:
        """Close the round that ends with this step. One that a resumed training repeats has ended before."""
        if step >= self._last_recorded()[0]:
            before = self.memory.state.round
            self._diagnose(args)
            if self.memory.state.round > before:
                self._report()

    def _report(self) -> None:
        """Report the figures of the last commit with TRL's own (`report_to`), under their names in
        trackers."""
        memory = self.memory
        [line] = rounds(History(memory.database, memory.run_id, memory.root), memory.state.round)
        metrics = self._observed.trainer._metrics["train"]
        for name in ("failures", "z", "epsilon_next", "created"):
            if (value := getattr(line, name)) is not None:
                metrics[f"memory/{name}"].append(float(value))

    def _diagnose(self, args: Any) -> None:
        """Diagnose everything that waits. Ranks that wait for this one time out after `ddp_timeout`
        seconds: it stops before that, and continues after the next round."""
        if self.diagnostician is None or self.embedder is None:
            return
        until = time.monotonic() + (args.ddp_timeout / 2 if args.world_size > 1 else math.inf)
        Rounds(self.memory).diagnose(
            self.diagnostician,
            self.embedder,
            DiagnosisConfig.model_validate(self.memory.config.get("diagnosis", {})),
            MemoryConfig.model_validate(self.memory.config.get("memory", {})),
            should_stop=lambda: time.monotonic() > until,
        )

    def _attempt(self, what: str, work: Callable[[], None]) -> None:
        """Do it, and log any error. No error here may end somebody's training."""
        try:
            work()
        except Exception as error:  # as the docstring says: the training goes on
            steps = {
                "drawn": "prompts come by the schedule before",
                "recorded": f"up to {HELD:,} rollouts are kept, and recorded as soon as possible",
                "diagnosed": f"rounds wait and are retried after every {self.steps} steps; or later:"
                f" {self._command('diagnose')}",
            }
            things = "prompts" if what == "drawn" else "rollouts"
            self._warn(what, f"{things} cannot be {what} now: {_described(error)}", steps[what], error)
        else:
            self._failing.discard(what)

    def _warn(self, what: str, wrong: str, next_step: str, error: Exception | None = None) -> None:
        """Warn once, until it succeeds again."""
        if what not in self._failing:
            self._failing.add(what)
            trace = None if error is None or isinstance(error, DiagEvoError) else error
            _logger.warning("%s. The training continues; %s", wrong, next_step, exc_info=trace)

    def _agree(self) -> None:
        """Every rank draws by the schedule of the last commit, as rank 0 has it."""
        if drawn_from(self.memory):
            if PartialState().is_main_process:
                self._attempt("drawn", lambda: follow(self.memory))
            share(self.memory)


def _asking(config: Config, model: str | None, base_url: str | None) -> Config:
    """The configuration with a served diagnostician."""
    role = config.roles.diagnostician.model_dump() | {"engine": "openai"}
    role |= {name: value for name, value in (("model", model), ("base_url", base_url)) if value is not None}
    try:
        asked = DiagnosticianRole.model_validate(role)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        message = fault["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{fault['loc'][-1]}: {message}", hint="base_url=http://HOST:8000/v1") from error
    roles = config.roles.model_copy(update={"diagnostician": asked})
    return config.model_copy(update={"roles": roles})


def _described(error: Exception) -> str:
    if isinstance(error, ConfigError) and error.hint is not None:
        return f"{error.message}; {error.hint}"
    return error.message if isinstance(error, DiagEvoError) else masked(f"{type(error).__name__}: {error}")
