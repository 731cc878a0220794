"""A run: rounds in order, measured after each; an interrupted one is resumed."""

import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from diagevo.config.loading import of_run
from diagevo.config.models import Config
from diagevo.config.resume_overrides import adjusted, changes, confirmed
from diagevo.config.sources import KeyPath, Layer
from diagevo.diagnosis.embedder import identity
from diagevo.errors import ConfigError, NotFoundError, StoreError
from diagevo.evaluation.evaluate import validate
from diagevo.evaluation.protocol import AT_BEST, colder
from diagevo.loop.first_look import first_look
from diagevo.loop.roles import Roles
from diagevo.loop.round import Round, RunContext, newest_cause, round_folder
from diagevo.loop.stages import check_artifact
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import History
from diagevo.memory.memory import Memory
from diagevo.memory.opening import open_memory
from diagevo.memory.read.round_figures import best_round, validations
from diagevo.memory.read.round_figures import rounds as figures_of
from diagevo.progress import STAGES, VALIDATION, Observer, StageProgress, StopFlag, playing
from diagevo.sampling.cached_sampler import CachedSampler
from diagevo.sampling.device import numbers_of
from diagevo.sampling.model_folder import base_of, check_model_folder, sha256_of
from diagevo.sampling.sampler import Sampler


@dataclass(frozen=True)
class Until:
    """Where to stop: after the commit of a round, or after one of its stages."""

    round: int
    stage: str | None = None


def train(
    config: Config | None,
    *,
    database: str,
    run_id: str,
    root: Path,
    resume: bool,
    observer: Observer,
    stop: StopFlag,
    rounds: int | None = None,
    until: Until | None = None,
    max_seconds: float | None = None,
    provided: Mapping[KeyPath, Any] | None = None,
    given: Layer | None = None,
) -> int:
    """Play a run up to its last round; returns the last committed round.

    A new run needs `config`; a resumed one uses the configuration in its log, and `rounds` may extend it. For
    an imported run, endpoints and keys count only from `provided`: the user's own values, by key. `given` are
    settings of memory, hardware and time limits that change from here on; they are recorded. Raises
    NotFoundError if there is nothing to resume, ConfigError if a new run's name is taken,
    MissingDependencyError if this machine lacks its device, StoppedSafely at a safe point once `stop` is set,
    `until` is reached or `max_seconds` have passed.
    """
    if config is not None and config.hardware.cluster == "local":
        numbers_of(config.hardware)  # raises if the device is missing, before a run is recorded
    with open_memory(database, run_id, root=root, create=not resume) as memory:
        if resume:
            memory.claim()  # before starting a validation that another process is running
        values, config = _stored_config(memory, provided or {}, given or Layer()) if resume else ({}, config)
        if config is None:
            raise ConfigError(
                "a new run needs a configuration", hint="name a profile: diagevo train --profile embedded"
            )
        if not resume and memory.state.config is not None:
            raise ConfigError(
                f"run {run_id} exists already", hint=f"resume it: diagevo train --run {run_id} --resume"
            )
        roles = Roles(config, root / run_id / "logs", observer.message, stop).check()
        with roles, _stopping_after(max_seconds, stop):
            context = RunContext(
                roles,
                memory,
                roles.diagnostician(memory),
                roles.embedder,
                folder=root / run_id,
                observer=observer,
            )
            run = Run(context, roles)
            if resume:
                memory.check_embedder(identity(roles.embedder))
                _check_prompts(memory, roles.prompt_digests())
                _adjust(memory, values, observer)
                memory.allow_policy(config.schedule.policy)
                memory.policy()  # raises now if its file is missing
                run.report_earlier_stages()
            else:
                run.configure()
            return run.play(rounds or config.round.rounds, until)


@contextmanager
def _stopping_after(seconds: float | None, stop: StopFlag) -> Iterator[None]:
    """Request a safe stop after `seconds`; None never does."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, stop.set)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Run:
    """The rounds of one run, in order."""

    def __init__(self, context: RunContext, roles: Roles) -> None:
        self.context = context
        self.roles = roles
        self.memory = context.memory
        self.folder = context.folder
        self.observer = context.observer

    def configure(self) -> None:
        """Record what the run is made of."""
        config, stop = self.roles.config, self.roles.stop
        if "corpus" in self.roles.method.shown():
            judge = config.roles.judge
            self.observer.message(f"corpus {self.roles.corpus.summary()}; judge: {judge.engine}")
        models = {
            "challenger": events.Model(
                name=config.roles.challenger.model, revision=sha256_of(self.roles.challenger, stop)
            ),
            "solver": events.Model(
                name=config.roles.solver.model, revision=sha256_of(self.roles.solver, stop)
            ),
            "diagnostician": events.Model(
                name=self.context.diagnostician.name, revision=self.context.diagnostician.revision
            ),
        }
        self.memory.configure(
            events.RunConfigured(
                config=config.model_dump(mode="json"),
                models=models,
                embedder=identity(self.roles.embedder),
                version=version("diagevo"),
                prompts=self.roles.prompt_digests(),
            )
        )

    def report_earlier_stages(self) -> None:
        """Tell a resumed run's observer how long its stages took so far."""
        took: dict[int, dict[str, float]] = {}
        types = ["StageCompleted", "CheckpointEvaluated"]
        for recorded in self.memory.log.read(self.memory.run_id, types=types):
            match recorded.event:
                case events.StageCompleted() as done:
                    took.setdefault(recorded.round, {})[done.stage] = done.seconds or 0.0
                case events.CheckpointEvaluated(benchmark="validation") as done:
                    took.setdefault(recorded.round, {})[VALIDATION] = done.seconds or 0.0
        self.observer.resumed(took, newest_cause(self.memory.state))

    def play(self, rounds: int, until: Until | None) -> int:
        """Play to the commit of the last round. An open round continues where it stopped."""
        last = rounds if until is None else min(rounds, until.round)
        warmed = self.memory.state.round == 0 and self.roles.config.warm_start.documents is not None
        if not warmed:
            self.measure(self.memory.state.round)
        committing = 0.0
        while (number := self.memory.state.round + 1) <= last:
            self.roles.stop.check(f"before round {number}")
            state = self.memory.state
            self.observer.round_started(
                number, rounds, state.epsilon, state.failures if state.round else None
            )
            stage = until.stage if until is not None and until.round == number else None
            stage = None if stage == STAGES[-1] else stage  # the round is committed and measured after it
            played = Round(self.context, number, self.policy("challenger"), self.policy("solver"), stage)
            played.stages.scheduled(committing)
            if warmed and number == 1:
                played.warm_start()
                self.measure(0)
            played.play()
            committing = played.committing
            self.measure(number)
            self.rotate()
            [figures] = figures_of(self._history(), number)
            self.observer.round_finished(number, figures)
        return self.memory.state.round

    def _history(self) -> History:
        return History(self.memory.database, self.memory.run_id)

    def policy(self, role: str) -> Path:
        """The policy after the last committed round: the newest that a stage recorded, or the starting model.
        Raises StoreError if its folder, or that of an adapter's base model, is gone or has changed.
        """
        roles = ("challenger", "solver") if self.roles.method.one_model else (role,)
        left = self._history().policies(roles, self.memory.state.round)
        if not left:
            return self._start(role)
        kept = {(self.folder / artifact.path).resolve(): (number, artifact) for number, artifact in left}
        found = self.folder / left[-1][1].path
        base = base_of(found) if found.exists() else None
        for folder in filter(None, (found, base)):
            if folder.resolve() in kept:
                number, artifact = kept[folder.resolve()]
                check_artifact(self.folder, artifact, role, number, self.roles.stop)
            else:
                self._start(role)
        return check_model_folder(found)

    def _start(self, role: str) -> Path:
        """Raises StoreError if it differs from what was recorded when the run began."""
        folder = self.roles.challenger if role == "challenger" else self.roles.solver
        if sha256_of(folder, self.roles.stop) != self._history().configuration().models[role].revision:
            raise StoreError(
                f"{folder}, the {role} that run {self.memory.run_id} began with, has changed since",
                hint="restore its files, or start another run",
            )
        return folder

    def measure(self, number: int) -> None:
        """Validate the solver of a committed round, once; round 0 is the model that the run starts from."""
        validation = self.roles.validation
        if validation is None:
            return
        if number in validations(self._history(), number):
            return
        settings, policy = self.roles.config.validation, self.policy("solver")
        params, seed = self.roles.params, self.roles.seed("validation")
        answers = self.folder / f"validation-{number:03d}-answers.jsonl"
        self.roles.stop.check(f"before the validation of round {number}")
        total = len(validation.questions) * (settings.samples * (1 + len(settings.temperatures)) + 1)
        self.observer.stage_started(number, VALIDATION, 1, total)
        self.observer.stage_progress(number, VALIDATION, StageProgress(0, total, "loading the model"))
        began, watched = time.monotonic(), _Measuring(self.observer, number, len(validation.questions), total)
        asked = self.roles.open_sampler(policy)
        with (
            playing(f"{self.memory.run_id}, round {number}: validation"),
            CachedSampler(asked, answers, policy, watched.answered) as sampler,
        ):
            if number == 0:
                with playing(f"{self.memory.run_id}, round 0: first look"):
                    self._look(asked)
            metrics = validate(
                sampler,
                self.roles.templates,
                validation.questions,
                self.roles.checker,
                samples=settings.samples,
                params=params,
                seed=seed,
                temperatures=settings.temperatures,
                on_begin=watched.begin,
            )
        inside, seconds = policy.is_relative_to(self.folder), time.monotonic() - began
        self.memory.evaluated(
            events.CheckpointEvaluated(
                role="solver",
                checkpoint=policy.relative_to(self.folder).as_posix()
                if inside
                else self.roles.config.roles.solver.model,
                benchmark="validation",
                questions=len(validation.questions),
                conditions={
                    "data": validation.digest,
                    "samples": settings.samples,
                    "temperature": params.temperature,
                    "top_p": params.top_p,
                    "seed": seed,
                    "temperatures": list(settings.temperatures),
                },
                metrics=metrics,
                seconds=round(seconds, 3),
            ),
            number,
        )
        answers.unlink(missing_ok=True)
        figures = _measured(metrics, settings.samples)
        self.observer.stage_finished(number, VALIDATION, seconds, figures)

    def _look(self, sampler: Sampler) -> None:
        """Warn at once if nothing in the starting model's output can be read, and say what helps."""
        validation = self.roles.validation
        assert validation is not None
        alike = self.policy("challenger") == self.policy("solver")
        texts = [question.text for question in validation.questions]
        nothing = [
            look for look in first_look(self.roles, sampler, texts, challenger=alike) if not look.readable
        ]
        for look in nothing:
            self.observer.message(f"round 0: {look.summary()}")
        if nothing:
            documents = "builtin:arithmetic" if self.roles.config.world == "arithmetic" else "FILE.jsonl"
            helps = (
                "more of it: warm_start.steps"
                if self.roles.config.warm_start.documents is not None
                else f"--set warm_start.documents={documents}, supervised steps before round 1"
            )
            self.observer.message(f"round 0: a warm start teaches the form of questions and answers; {helps}")

    def rotate(self) -> None:
        """Remove old rounds' weights, except the best solver and those that the next round starts from.

        The latter may be old: a round that retains no question leaves the solver as it was.
        """
        keep = self.roles.config.round.keep_checkpoints
        if keep is None:
            return
        needed = {self.policy("challenger"), self.policy("solver")}
        if (best := best_round(self._history())) is not None:
            needed.add(round_folder(self.folder, best) / "solver")
        for number in range(1, self.memory.state.round - keep + 1):
            for role in ("challenger", "solver"):
                old = round_folder(self.folder, number) / role
                if not needed & {old, old.resolve()}:
                    shutil.rmtree(old, ignore_errors=True)


def _check_prompts(memory: Memory, now: Mapping[str, str]) -> None:
    """Raise ConfigError if a prompt template, or what prompts show, differs from the run's. A fork with
    other prompts has none to compare yet."""
    before = History(memory.database, memory.run_id).configuration().prompts
    changed = sorted(name for name in before if before[name] != now.get(name))
    if changed:
        raise ConfigError(
            f"prompt templates have changed since run {memory.run_id} was configured: {', '.join(changed)}",
            hint="restore them, or fork the run with the new ones: diagevo runs fork RUN@N"
            " --set prompts=FOLDER",
        )


def _stored_config(
    memory: Memory, provided: Mapping[KeyPath, Any], given: Layer
) -> tuple[dict[str, Any], Config]:
    """The configuration that the run was started with, adjusted; for an imported run, settings that it may
    not set itself come from `provided`."""
    if memory.state.config is None:
        raise NotFoundError(f"run {memory.run_id} has no configuration", hint="start a run: diagevo train")
    stored = memory.state.config
    if memory.log.imported(memory.run_id) is not None:
        stored = confirmed(stored, memory.run_id, provided)
    if not memory.played_by_train:
        raise ConfigError(
            f"run {memory.run_id} was not started by diagevo train: its rounds come from another training",
            hint="continue it with diagevo ingest and diagevo diagnose, or train another: --run NAME",
        )
    of_run(stored, memory.run_id)
    return adjusted(stored, given, memory.run_id)


def _adjust(memory: Memory, values: Mapping[str, Any], observer: Observer) -> None:
    """Record the settings that change from here on. Those confirmed for an imported run are not its own."""
    if memory.log.imported(memory.run_id) is not None:
        return
    if changed := changes(memory.config, values):
        memory.reconfigure(values)
        observer.message(f"from here on: {', '.join(changed)}")


class _Measuring:
    """A validation's answers, counted over everything it measures, as the progress of a stage."""

    def __init__(self, observer: Observer, number: int, questions: int, total: int) -> None:
        self._observer, self._number, self._questions, self._total = observer, number, questions, total
        self._name, self._samples, self._before = "", 0, 0

    def begin(self, name: str, samples: int) -> None:
        self._before += self._samples * self._questions
        self._name = name.replace("mean_at_k", f"mean@{samples}").replace("_T", " at T = ")
        self._samples = samples
        self.answered(0, self._questions)

    def answered(self, done: int, questions: int) -> None:
        progress = StageProgress(self._before + done * self._samples, self._total, self._name)
        self._observer.stage_progress(self._number, VALIDATION, progress)


def _measured(metrics: Mapping[str, float], samples: int) -> dict[str, object]:
    """For displays."""
    figures: dict[str, object] = {f"mean@{samples}": metrics["mean_at_k"], "greedy": metrics["greedy"]}
    if heats := colder(metrics):
        cooled = ", ".join(f"{metrics[metric]:.3f} ({heat})" for metric, heat in heats.items())
        figures["at a lower temperature"] = cooled
        figures["at its best temperature"] = metrics[AT_BEST]
    return figures
