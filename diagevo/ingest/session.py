"""The run that records a trainer's rollouts: created with the first steps, closed while waiting for a
followed training, so that others may write in between."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from diagevo.config.method import IngestConfig
from diagevo.errors import ConfigError, HeldError, NotFoundError, StoppedSafely, StoreError
from diagevo.ingest.formats import Format, read
from diagevo.ingest.recording import Bar, IngestSummary, Recorder, configure
from diagevo.ingest.rollout_steps import RolloutStep
from diagevo.memory.history import open_history
from diagevo.memory.memory import Memory
from diagevo.memory.opening import open_memory
from diagevo.memory.state.model import MemoryState
from diagevo.progress import StopFlag
from diagevo.text.numbers import count

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.ingest.steering import Steering

T = TypeVar("T")
POLL_SECONDS = 2.0
"""Seconds between two checks of a followed training."""
HELD = 10_000
"""Rollouts buffered until one on the other side of --pass-at comes; beyond that the files are read again."""


TOGETHER = 48 * 2**20
"""Approximate characters of responses recorded in one transaction."""


class IngestSession:
    """Takes steps into a run until it is closed.

    Args:
        database: Its URL.
        run: The run's name.
        options: Settings of `ingest` given by the user, by name.
        configured: Makes the configuration of a new run; called only for one.
        stop: Checked between steps; a followed training is polled until it is set.
        follow: Whether the training still writes.
        resumed: Whether the training resumed, so that steps may have new rollouts.
        say: Receives messages while a training is followed.
        steering: For a followed training, diagnoses each round and serves the draws of the next.
    """

    def __init__(
        self,
        database: str,
        run: str,
        options: Mapping[str, Any],
        configured: "Callable[[], Config]",
        *,
        stop: StopFlag,
        follow: bool,
        resumed: bool,
        say: Callable[[str], None],
        steering: "Steering | None" = None,
    ) -> None:
        self._database, self._run, self._options, self._configured = database, run, options, configured
        self._steering = steering
        self._stop, self._follow, self._resumed, self._say = stop, follow, resumed, say
        self._known = False
        """Whether the run was ingested before; set by `settings`."""
        self._memory: Memory | None = None
        self._recorder: Recorder | None = None

    def __enter__(self) -> "IngestSession":
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def settings(self) -> IngestConfig:
        """The settings of the run's earlier ingest, or those given now."""
        try:
            history = open_history(self._database, self._run)
        except (NotFoundError, StoreError):  # opening it for writing reports what is wrong, if anything is
            return self._config().ingest
        self._known = True
        try:
            return _ingest_settings(history.configuration().config)
        finally:
            history.close()

    def take_files(self, format: Format, path: Path, report: IngestSummary) -> IngestConfig:
        """Record the content of the files at `path`, as `take` does; returns the settings used."""
        settings = self.settings()
        steps = partial(
            read,
            format,
            path,
            reward=settings.reward,
            mapped=settings.map,
            wait=self.wait if self._follow else None,
            on_cut=report.cut.append,
            on_note=report.notes.append,
        )
        self.take(steps, path, settings.pass_at, report)
        return settings

    def take(
        self, steps: Callable[[], Iterable[RolloutStep]], path: Path, pass_at: float, report: IngestSummary
    ) -> None:
        """Record the steps in the files at `path` each time they are read, and count them in `report`. A new
        run needs a pass and a failure, since a wrong --pass-at leaves only one of them. Raises ConfigError if
        there is no rollout, or not both, and for an invalid rollout: then the steps before it are
        recorded."""
        begun = self._known or self._follow
        recorded = 0
        if self._steering is not None:
            self._steering.serve(self.memory)
        try:
            found = steps() if begun else self._begun(steps, path, pass_at, report)
            for together in self._together(found):
                self.recorder.record(together, report)
                recorded += len(together)
                if self._follow:
                    [step] = together
                    self._say(f"step {step.number}: {len(step.rollouts)} rollouts")
            if not report.rollouts and not self._follow:
                raise _nothing(path, report)
            if report.steps and self._steering is None:  # which diagnoses only complete rounds
                self._open_next(full=False)
        except ConfigError as error:
            if recorded:
                going = f"{count(recorded, 'step')} before it recorded: the same command goes on there"
                hint = going if error.hint is None else f"{error.hint}; {going}"
                raise ConfigError(error.message, hint=hint) from error
            raise

    def _begun(
        self, steps: Callable[[], Iterable[RolloutStep]], path: Path, pass_at: float, report: IngestSummary
    ) -> Iterable[RolloutStep]:
        """All steps, once both a pass and a failure were seen, or need not be."""
        held: list[RolloutStep] = []
        bar = Bar(pass_at, named="pass_at" in self._options)
        source = iter(steps())
        for step in source:
            self._stop.check(f"before step {step.number}")
            answered = any(rollout.answer is not None for rollout in step.rollouts)
            bar.see((rollout.reward for rollout in step.rollouts), answered=answered)
            held = [*held, step] if bar.rollouts <= HELD else []
            if bar.parts:
                _nothing_recorded(bar.refuse_far)
                return chain(held, source) if held else steps()
        if not bar.rollouts:
            report.unscored += sum(step.unscored for step in held)
            raise _nothing(path, report)
        note = _nothing_recorded(bar.one_sided)
        if not held:
            report.cut.clear()  # the files are read again, and say it again
            report.notes.clear()
        report.notes.append(note)
        return held or steps()

    def _together(self, steps: Iterable[RolloutStep]) -> Iterator[list[RolloutStep]]:
        """Steps recorded in one transaction, so that a database writes each of its pages once for all of
        them; also those before a fault."""
        held: list[RolloutStep] = []
        size = 0
        try:
            for step in steps:
                if not self._follow:
                    self._stop.check(f"before step {step.number}")
                held.append(step)
                size += sum(len(rollout.response) for rollout in step.rollouts)
                if self._follow or size >= TOGETHER:
                    yield held
                    held, size = [], 0
        except (ConfigError, StoppedSafely):
            if held:
                yield held
            raise
        if held:
            yield held

    @property
    def memory(self) -> Memory:
        warned = False
        while self._memory is None:
            try:
                self._memory = self._opened()
            except HeldError as held:
                if not self._follow or self._stop:
                    raise
                if not warned:
                    self._say(f"waiting: {held.message}")
                warned = True
                time.sleep(POLL_SECONDS)
        return self._memory

    @property
    def recorder(self) -> Recorder:
        if self._recorder is None:
            settings = _ingest_settings(self.memory.state.config)
            self._recorder = Recorder(self.memory, settings, resumed=self._resumed)
        return self._recorder

    def wait(self) -> bool:
        """Let others write, then check again; False once waiting should stop."""
        if self._memory is not None:
            while self._open_next(full=True) and self._steering is not None and not self._stop:
                if not self._steering.play(self.memory):
                    break
            self._leave()
        if not self._stop:
            time.sleep(POLL_SECONDS)
        return not self._stop

    def _open_next(self, *, full: bool) -> bool:
        """Open the next round, if none is open; with `full` only one with all its steps. Returns
        whether one is open now."""
        enough = self.recorder.settings.steps_per_round if full else 1
        state = self.memory.state
        if state.open is None and self.recorder.filled[state.batch(state.round + 1)] >= enough:
            from diagevo.ingest.rounds import Rounds  # an open round of a known run accepts no steps

            Rounds(self.memory).open_next()
        return self.memory.state.open is not None

    @property
    def served(self) -> bool:
        """Whether the run's configuration names a language model as diagnostician."""
        stored = (self.state.config if self.state is not None else None) or {}
        return stored.get("roles", {}).get("diagnostician", {}).get("engine") == "openai"

    @property
    def state(self) -> MemoryState | None:
        """None where nothing was read."""
        return None if self._memory is None else self._memory.state

    def standing(self) -> tuple[int | None, int]:
        """The open round, and how many are waiting after it."""
        if (state := self.state) is None:
            return None, 0
        opened = None if state.open is None else state.open.number
        return opened, max(0, max(self.recorder.filled, default=0) - state.batch(state.last_opened + 1) + 1)

    def _leave(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._memory = self._recorder = None

    def _opened(self) -> Memory:
        """The run, configured. Raises ConfigError if it was ingested with other settings, or not at all."""
        memory = open_memory(self._database, self._run)
        try:
            memory.claim()
            if memory.state.config is None:
                from diagevo.diagnosis.embedder import embedder_for

                config = self._config()
                self._check(config.model_dump())
                configure(memory, config, embedder_for(config.roles.embedder))
            elif memory.played_by_train:
                raise ConfigError(
                    f"run {self._run} is played by diagevo train: its rounds are its own",
                    hint="ingest into another run: --run NAME",
                )
            self._check(memory.config)
            stored = _ingest_settings(memory.state.config)
            for name, value in self._options.items():
                if getattr(stored, name) != value:
                    was, wanted = (_as_option(each) for each in (getattr(stored, name), value))
                    raise ConfigError(
                        f"run {self._run} was ingested with {name} = {was}, not {wanted}",
                        hint="leave the option out, or ingest into another run: --run NAME",
                    )
        except BaseException:
            memory.close()
            raise
        return memory

    def _check(self, config: Mapping[str, Any]) -> None:
        if self._steering is not None:
            self._steering.check(config)

    def _config(self) -> "Config":
        from diagevo.config.loading import apply_overrides
        from diagevo.config.sources import Layer, Source

        given = Layer()
        for name, value in self._options.items():
            given.put(("ingest", name), value, Source("flag", f"--{name.replace('_', '-')}"))
        return apply_overrides(self._configured().model_dump(), given, self._run)


def _nothing_recorded(check: Callable[[], T]) -> T:
    """The result of checking the threshold.

    Raises its ConfigError, which says that nothing was recorded yet.
    """
    try:
        return check()
    except ConfigError as error:
        raise ConfigError(error.message, hint=f"{error.hint}; nothing was recorded") from error


def _nothing(path: Path, report: IngestSummary) -> ConfigError:
    """Why no rollout was read, as far as the files tell."""
    why = [f"{name} ends inside a line: wait for its writer, or --follow" for name in report.cut]
    why += report.notes
    if report.unscored:
        without = f"{count(report.unscored, 'rollout')} without a reward"
        why.append(f"{without}: score them, or name the field that has one, --reward FIELD")
    what = "no rollout" if not report.unscored else "no rollout with a reward"
    if report.cut:
        what = "no complete step"
    return ConfigError(
        f"{what} was found in {path}", hint="; ".join(why) or "name the folder or file that holds them"
    )


def _ingest_settings(config: Mapping[str, Any] | None) -> IngestConfig:
    return IngestConfig.model_validate((config or {}).get("ingest", {}))


def _as_option(value: Any) -> str:
    """As written on the command line."""
    if isinstance(value, dict):
        return ",".join(f"{field}={path}" for field, path in value.items())
    return "nothing" if value is None else str(value)
