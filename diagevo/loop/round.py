"""One round of DiagEvo, as in the paper's Figure 2: `play` is the table of contents.

Every verb is a stage that runs once to its end. An interrupted round is replayed from its opening:
completed stages are read back, the running one is voided and repeated. Long, but one file:

it is one class, and each stage that `play` names is a method of a few lines.
"""

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from diagevo.answers.extraction import extract_boxed
from diagevo.config.resume_overrides import adjusted
from diagevo.config.sources import from_settings
from diagevo.diagnosis.cause_extraction import Diagnoser, Progress
from diagevo.diagnosis.diagnostician import Diagnostician
from diagevo.diagnosis.embedder import Embedder
from diagevo.diagnosis.maintain import MaintenanceReport, maintain
from diagevo.equations.filter import verdict
from diagevo.errors import OutOfMemoryError, WrongTrainingError
from diagevo.loop.players import (
    Challenger,
    OnProgress,
    Solver,
    VotedCandidate,
    load_written,
    plays_here,
    save_written,
)
from diagevo.loop.stages import Outcome, Stages, StepRecorder
from diagevo.memory.events import (
    ROUNDS,
    WARM_START_FILES,
    CandidateScored,
    FailureObserved,
    PhaseMeasured,
    RoundCommitted,
)
from diagevo.memory.memory import Memory
from diagevo.memory.state.model import MemoryState
from diagevo.memory.state.projected_schedule import Schedule
from diagevo.memory.state.stored_config import filter_in
from diagevo.methods.context import PlayContext
from diagevo.methods.interface import Lesson, Written
from diagevo.private import private_folder
from diagevo.progress import WARM_START, Observer, StageProgress
from diagevo.training.measures import PhaseMeasures, warnings
from diagevo.training.phase import Rollout, TrainingSummary
from diagevo.training.warm_start import WarmStart, play_warm_start


@dataclass(frozen=True)
class RunContext:
    """What a run's rounds share. `folder` is the run's."""

    roles: PlayContext
    memory: Memory
    diagnostician: Diagnostician
    embedder: Embedder
    folder: Path
    observer: Observer


class Round:
    """Round `number`, starting from the previous round's policies."""

    def __init__(
        self, context: RunContext, number: int, challenger: Path, solver: Path, last_stage: str | None = None
    ) -> None:
        """`last_stage`: stop safely once this one is complete."""
        self.context = context
        self.number = number
        self.roles = context.roles
        self.memory = context.memory
        self.challenger = Challenger(challenger, context.roles)
        self.solver = Solver(solver, context.roles)
        self.folder = round_folder(context.folder, number)
        self.stages = Stages(
            context.memory,
            number,
            context.folder,
            context.observer,
            context.roles.stop,
            last_stage,
            restarts=context.roles.config.hardware.restarts,
            shrink=self._shrink,
        )
        self.learns = context.roles.method.learns(number)
        self.committing = 0.0
        """Seconds of its commit, which none of its own stages can record."""

    def play(self) -> RoundCommitted:
        """(1) challenger, (2) candidates, votes, filter and solver, (3) maintenance, (4) next schedule."""
        began = time.monotonic()
        private_folder(self.folder)
        # Reopening gives the same schedule: it is in the log, and a resumed round reads it back.
        schedule = self.memory.open_round(self.number, seed=self.roles.seed(self.number, "schedule"))
        self.stages.scheduled(time.monotonic() - began)
        # The challenger is trained against the previous round's solver.
        self.train_challenger(schedule)
        if "solver" in self.learns:
            written = self.write_candidates(schedule)
            self.vote(written)
            lessons = self.keep_learnable()
            self.train_solver(lessons)
            # Causes change only now, when all of the round's failures are known: matches must not depend on
            # the order in which steps arrived.
            self.maintain()
        else:
            for stage in ("candidates", "votes", "solver", "diagnosis"):
                self.stages.passed(stage)
        began = time.monotonic()
        committed = self.memory.commit()
        self.committing = time.monotonic() - began
        return committed

    def warm_start(self) -> None:
        """Supervised steps before round 1, from which both roles start; their documents are kept with
        them."""
        settings, folder = self.roles.config.warm_start, self.context.folder
        documents, output, work = (folder / name for name in WARM_START_FILES)
        private_folder(self.folder)
        self.memory.open_round(self.number, seed=self.roles.seed(self.number, "schedule"))

        def train() -> Outcome:
            self.roles.write_documents(documents)
            losses: list[float] = []

            def on_step(step: int, loss: float) -> None:
                losses.append(loss)
                self.stages.progress(WARM_START, StageProgress(step, settings.steps, f"loss {loss:.3f}"))
                self.stages.check_stop(f"after step {step} of the warm start")

            play_warm_start(
                WarmStart(
                    start=self.solver.policy,
                    documents=documents,
                    settings=settings,
                    hardware=self.roles.config.hardware,
                    output=output,
                    work=work,
                    seed=self.roles.seed("warm start"),
                ),
                on_step,
                self.roles.stop,
            )
            summary = {"steps": settings.steps, "loss": losses[-1] if losses else None}
            return Outcome((documents, output), summary=summary)

        self.stages.play(WARM_START, train, total=settings.steps, checkpoints=work)
        shutil.rmtree(work, ignore_errors=True)
        self.challenger, self.solver = Challenger(output, self.roles), Solver(output, self.roles)

    def train_challenger(self, schedule: Schedule) -> None:
        """GRPO against the frozen solver; the challenger of this round is the updated one."""
        settings = self.roles.config.challenger_grpo
        trains = self.roles.config.round.train_challenger and "challenger" in self.learns
        if not trains or settings.max_steps == 0:
            self.stages.passed("challenger")
            return
        plan = schedule.draw(
            settings.max_steps * settings.batch_questions,
            seed=self.roles.seed(self.number, "challenger plan"),
        )
        seed = self.roles.seed(self.number, "challenger asks")
        asks = self.roles.method.asks(plan, seed, self._past, self.number)
        output, work = self.folder / "challenger", self.folder / "challenger-work"

        def train() -> Outcome:
            self._name_logs(output)
            steps = StepRecorder(self.memory, self.number, "challenger")

            def on_step(step: int, rollouts: Sequence[Rollout], rewards: Sequence[float]) -> None:
                mean = steps.rewarded(rollouts, rewards)
                progress = StageProgress(step, settings.max_steps, f"mean reward {mean:.3f}", mean)
                self.stages.progress("challenger", progress)
                self.stages.check_stop(f"after step {step} of the challenger's training")

            with self._recording("challenger"):
                summary = self.challenger.train(
                    asks,
                    self.solver,
                    self.number,
                    output=output,
                    work=work,
                    on_step=on_step,
                    on_update=steps.updated,
                )
            reward = steps.reward(summary.steps)
            return Outcome(
                (output,),
                record=lambda: self._record("challenger", summary.measures),
                summary=_trained(summary, reward),
                reward=reward,
            )

        self.stages.play("challenger", train, total=settings.max_steps, checkpoints=work)
        shutil.rmtree(work, ignore_errors=True)
        # Also if the stage was already complete: later stages use the weights that it produced.
        self.challenger = Challenger(output, self.roles)
        if self.roles.method.one_model:
            self.solver = Solver(output, self.roles)

    def _past(self) -> list[str]:
        """The valid tasks of earlier rounds, oldest first."""
        scored = self.memory.log.read(
            self.memory.run_id, types=["CandidateScored"], rounds=(1, self.number - 1)
        )
        return [
            self.memory.artifacts.get(event.task)
            for recorded in scored
            if isinstance(event := recorded.event, CandidateScored) and event.task is not None
        ]

    def write_candidates(self, schedule: Schedule) -> list[Written]:
        """A fresh pool from the updated challenger under the same schedule."""
        # A separate seed: other draws than those that the challenger was trained on.
        plan = schedule.draw(self.roles.config.round.candidates, seed=self.roles.seed(self.number, "pool"))
        method = self.roles.method
        asks = method.asks(plan, self.roles.seed(self.number, "pool asks"), self._past, self.number)
        file, answers = self.folder / "candidates.jsonl", self.folder / "candidates-answers.jsonl"

        def write() -> Outcome:
            written = self.challenger.write(asks, self.number, answers, self._answered("candidates"))
            written = method.admit(written, self.context.embedder)
            save_written(file, written)
            valid = sum(w.question is not None for w in written)
            return Outcome((file,), summary={**Counter(draw.mode for draw in plan), "valid": valid})

        self.stages.play("candidates", write, total=len(plan))
        # Cached replies of an interrupted stage; its result is a file of the completed one.
        answers.unlink(missing_ok=True)
        human = method.human(len(plan), self.roles.seed(self.number, "human items"))
        return [*load_written(file, asks, method), *human]

    def vote(self, written: Sequence[Written]) -> None:
        """N answers per candidate by the frozen solver, the filter's verdict, and the promotions due."""
        answers = self.folder / "votes-answers.jsonl"

        def vote() -> Outcome:
            answered = self.solver.answer(written, self.number, answers, self._answered("votes"))
            scored = [self._scored(each) for each in answered]
            summary: dict[str, object] = {**Counter(candidate.verdict for candidate in scored)}
            if undecided := sum(candidate.undecided for candidate in scored):
                summary["undecided comparisons"] = undecided

            def record() -> None:
                self.memory.score(scored)
                self.memory.promote()

            return Outcome(record=record, summary=summary)

        self.stages.play("votes", vote, total=len(written))
        answers.unlink(missing_ok=True)

    def keep_learnable(self) -> list[Lesson]:
        """The candidates that the filter retained (Equation 3), as recorded in the log."""
        scored = self.memory.log.read(
            self.memory.run_id, types=["CandidateScored"], rounds=(self.number, self.number)
        )
        return [
            Lesson(
                question_id=event.question_id,
                question=self.memory.artifacts.get(event.question),
                label=event.label,
                reference=event.reference,
                rewards=self.roles.method.solver_rewards(event),
                task=None if event.task is None else self.memory.artifacts.get(event.task),
                part=event.part,
            )
            for recorded in scored
            if isinstance(event := recorded.event, CandidateScored)
            and event.verdict == "kept"
            and event.label is not None
            and event.reference is not None
        ]

    def train_solver(self, lessons: Sequence[Lesson]) -> None:
        """GRPO towards the labels. Each failed trajectory is observed, and diagnosed as it arrives."""
        settings = self.roles.config.solver_grpo
        output, work = self.folder / "solver", self.folder / "solver-work"
        # One pass, as in the paper: no question is trained on twice.
        steps = min(settings.max_steps, -(-len(lessons) // settings.batch_questions))

        def train() -> Outcome:
            if not steps:
                return Outcome(summary={"steps": 0, "failures": 0})
            self._name_logs(output)
            trained = StepRecorder(self.memory, self.number, "solver")
            with Diagnoser(self.memory, self.context.diagnostician, self.roles.config.diagnosis) as diagnoser:
                diagnosing = self.roles.config.diagnosis.enabled
                if diagnosing:
                    # From an earlier attempt: steps before the checkpoint are not repeated; their
                    # failures still wait.
                    diagnoser.submit(self.memory.undiagnosed())
                failed = FailureCapture(self.roles, self.memory, lessons)

                def on_step(step: int, rollouts: Sequence[Rollout], rewards: Sequence[float]) -> None:
                    failures = failed.of_step(rollouts, rewards)
                    # In the log before the step's checkpoint counts: a kill between them repeats the step,
                    # never loses it.
                    self.memory.observe(failures)
                    if diagnosing:
                        diagnoser.submit(failures)
                    mean = trained.rewarded(rollouts, rewards)
                    detail = f"mean reward {mean:.3f}, {len(failures)} failures"
                    self.stages.progress("solver", StageProgress(step, steps, detail, mean))
                    self.stages.check_stop(f"after step {step} of the solver's training")

                with self._recording("solver"):
                    summary = self.solver.train(
                        lessons,
                        self.number,
                        output=output,
                        work=work,
                        on_step=on_step,
                        on_update=trained.updated,
                    )
                # The stage's end waits for open requests: settlement needs every verdict of the round.
                diagnoser.drain(lambda: bool(self.stages.stop))
            reward = trained.reward(summary.steps)
            return Outcome(
                (output,),
                record=lambda: self._record("solver", summary.measures),
                summary=_trained(summary, reward) | {"waited": round(diagnoser.waited, 2)},
                parts={
                    "extraction": diagnoser.waited,
                    "beside training": max(0.0, diagnoser.busy - diagnoser.waited),
                },
                reward=reward,
            )

        self.stages.play("solver", train, total=steps, checkpoints=work)
        shutil.rmtree(work, ignore_errors=True)
        if steps:
            self.solver = Solver(output, self.roles)

    def maintain(self) -> None:
        """Failures update the memory: match or create causes, merge nodes."""
        config = self.roles.config
        if not config.diagnosis.enabled:
            self.stages.passed("diagnosis")
            return

        def diagnose() -> Outcome:
            report = maintain(
                self.memory,
                self.context.diagnostician,
                self.context.embedder,
                config.diagnosis,
                config.memory,
                lambda p: self._diagnosis_progress(p),
                should_stop=lambda: bool(self.roles.stop),
            )
            summary = _maintenance(report)
            if report.settled["new_cause"]:
                summary["newest cause"] = newest_cause(self.memory.state)
            return Outcome(summary=summary, parts=report.seconds)

        self.stages.play("diagnosis", diagnose)

    def _shrink(self, stage: str, error: OutOfMemoryError) -> str:
        """Halve what a device holds at once, from now on and in the log."""
        section = "hardware" if error.setting == "rows_at_once" else f"{stage}_grpo"
        key = f"{section}.{error.setting}"
        before = getattr(getattr(self.roles.config, section), error.setting)
        # Halve what was actually held, if less than the setting: halving the setting alone might change
        # nothing.
        if (after := min(before, error.held) // 2) < 1:
            raise OutOfMemoryError(
                f"round {self.number}, training of the {stage}: {error.message}",
                hint=f"{key} can be no lower. More GPUs (hardware.processes), or less of each for vLLM"
                " (hardware.vllm_memory): diagevo train --resume --set KEY=VALUE",
            ) from error
        given, run = from_settings((f"{key}={after}",)), self.memory.run_id
        self.memory.reconfigure(adjusted(self.memory.config, given, run)[0])
        # An imported run uses confirmed settings, which its log does not have.
        _, self.roles.config = adjusted(self.roles.config.model_dump(mode="json"), given, run)
        return f"{key} is {after} from now on; it was {before}"

    @contextmanager
    def _recording(self, stage: str) -> Iterator[None]:
        """Wraps a training phase: its measurements are recorded even if it stops itself."""
        try:
            yield
        except WrongTrainingError as error:
            if isinstance(error.measures, PhaseMeasures):
                self._record(stage, error.measures)
            message = f"round {self.number}, training of the {stage}: {error.message}"
            raise WrongTrainingError(message, hint=error.hint, measures=error.measures) from error

    def _record(self, stage: str, measures: PhaseMeasures) -> None:
        attempt = self.memory.stage(stage).attempt
        self.memory.phase_measured(PhaseMeasured(stage=stage, attempt=attempt, **asdict(measures)))
        for line in warnings(measures):
            self.context.observer.message(f"round {self.number} {stage}: {line}")

    def _name_logs(self, output: Path) -> None:
        """Report where the training processes write their logs, if there are any."""
        if not plays_here(self.roles.config.hardware):
            logs = self.roles.workers.logs
            message = f"round {self.number} {output.name}: the training processes write to {logs}"
            self.context.observer.message(message)

    def _scored(self, answered: VotedCandidate) -> CandidateScored:
        """The event of one candidate. If a world knows the truth, the label is compared with it."""
        draw, votes, question = answered.written.draw, answered.votes, answered.written.question
        common = {
            "question_id": f"r{self.number}.q{draw.index}",
            "question": self.memory.artifacts.put(
                answered.written.completion if question is None else question
            ),
            "mode": draw.mode,
            "cause_id": draw.cause_id,
            "stitched_cause_id": draw.stitched_cause_id,
            "responses": self.roles.config.round.responses,
            "given": self.memory.artifacts.put_many(answered.written.given),
            "part": answered.written.part,
        }
        if votes is None or question is None:
            return CandidateScored(
                **common,
                votes=[],
                first=0,
                second=0,
                label=None,
                verdict="invalid",
                reference=None,
                invalid_reason=answered.written.invalid,
            )
        truth = None if self.roles.world is None else self.roles.world.answer(question)
        label_true = None
        label = answered.label
        if truth is not None and label is not None:
            label_true = self.roles.checker.agree(label, truth)
        return CandidateScored(
            **common,
            votes=list(votes.votes),
            first=votes.first,
            second=votes.second,
            label=label,
            verdict=verdict(
                votes.first,
                votes.second,
                votes.responses,
                label is not None,
                filter_in(self.roles.config.filter),
            ),
            reference=None if answered.reference is None else self.memory.artifacts.put(answered.reference),
            truth=truth,
            label_true=label_true,
            label_from=answered.written.label_from,
            task=None if answered.written.task is None else self.memory.artifacts.put(answered.written.task),
            undecided=0 if answered.written.task is not None else self.roles.checker.undecided([votes]),
        )

    def _answered(self, stage: str) -> OnProgress:
        return lambda done, total: self.stages.progress(stage, StageProgress(done, total))

    def _diagnosis_progress(self, progress: Progress) -> None:
        self.stages.progress("diagnosis", StageProgress(progress.done, progress.total, progress.phase))


class FailureCapture:
    """Turns a step's rollouts into observations: every failed response of a retained question, once."""

    def __init__(self, context: PlayContext, memory: Memory, lessons: Sequence[Lesson]) -> None:
        self.settings = context.config.diagnosis
        self.context = context
        self.memory = memory
        self.lessons: Mapping[str, Lesson] = {lesson.question_id: lesson for lesson in lessons}

    def of_step(self, rollouts: Sequence[Rollout], rewards: Sequence[float]) -> list[FailureObserved]:
        """A response that earns less than a right answer is a failure. The configured caps are applied."""
        failed = [
            rollout
            for rollout, reward in zip(rollouts, rewards, strict=True)
            if reward < self.lessons[rollout.row_id].rewards.right
        ]
        if self.settings.skip_truncated:
            failed = [rollout for rollout in failed if not rollout.truncated]
        if self.settings.failures_per_question is not None:
            failed = _first_of_each(failed, self.settings.failures_per_question)
        digests = self.memory.artifacts.put_many([rollout.text for rollout in failed])
        attempt = self.memory.stage("solver").attempt
        return [
            FailureObserved(
                failure_id=f"{rollout.row_id}.a{rollout.sample}",
                question_id=rollout.row_id,
                stage="solver",
                attempt=attempt,
                step=rollout.step,
                trajectory=digest,
                reference=self.lessons[rollout.row_id].reference,
                right=right,
            )
            for rollout, digest, right in zip(failed, digests, self._right(failed), strict=True)
        ]

    def _right(self, failed: Sequence[Rollout]) -> list[bool | None]:
        """Whether each gives the true answer after all; None if no world knows it."""
        executed = [self.lessons[rollout.row_id].task is not None for rollout in failed]
        if self.context.world is None or any(executed):  # an executed answer that failed is wrong
            return [False if known else None for known in executed]
        truths = [self.context.world.answer(self.lessons[rollout.row_id].question) for rollout in failed]
        answers = [extract_boxed(rollout.text) for rollout in failed]
        both = [(a, t) for a, t in zip(answers, truths, strict=True) if a is not None and t is not None]
        agrees = iter(self.context.checker.agree_many(both))
        return [
            None if truth is None else answer is not None and next(agrees)
            for answer, truth in zip(answers, truths, strict=True)
        ]


def _first_of_each(failed: Sequence[Rollout], cap: int) -> list[Rollout]:
    """At most `cap` failures of a question, in order."""
    seen: Counter[str] = Counter()
    first: list[Rollout] = []
    for rollout in failed:
        seen[rollout.row_id] += 1
        if seen[rollout.row_id] <= cap:
            first.append(rollout)
    return first


def round_folder(run: Path, number: int) -> Path:
    """The folder of a round's candidates and checkpoints."""
    return run / ROUNDS / f"{number:03d}"


def newest_cause(state: MemoryState) -> str | None:
    """The newest cause, in words."""
    found = max(state.causes.values(), key=lambda cause: int(cause.cause_id[1:]), default=None)
    return None if found is None else f"{found.cause_id} {found.description}"


def _trained(summary: TrainingSummary, reward: float | None) -> dict[str, object]:
    """For displays.

    `log-prob gap`: the largest distance between the sampler's and the trainer's log-probabilities.
    """
    found = summary.measures
    measured = {
        "KL at step 1": found.first_kl,
        "log-prob gap": found.sampling_gap,
        "rewards": f"{found.reward_lowest:.3g} to {found.reward_highest:.3g}",
        "cut off": f"{found.cut_off}/{found.completions}",
        "attention": found.attention,
    }
    return {"steps": summary.steps, "reward": reward, **measured}


def _maintenance(report: MaintenanceReport) -> dict[str, object]:
    return {
        **report.verdicts,
        **report.settled,
        "new nodes": report.new_nodes,
        "merged": report.pairs["merged"],
    }
