"""The two models that learn: the challenger writes questions, the solver answers them.

Each is a policy folder that is sampled and updated by GRPO. Memory guides only the challenger; the solver
sees questions and nothing else.

Long, but one file: both are sampled and trained by the same phase, and are best read together.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from diagevo.answers.extraction import extract_boxed
from diagevo.answers.votes import Votes
from diagevo.config.models import HardwareConfig
from diagevo.errors import StoreError
from diagevo.memory.state.vote_checks import VOTES_SAY
from diagevo.methods.context import PlayContext
from diagevo.methods.interface import Ask, Lesson, Method, SolverRewards, Written, refused
from diagevo.private import private
from diagevo.sampling.cached_sampler import CachedSampler
from diagevo.sampling.device import uses_cpu
from diagevo.sampling.sampler import Completion, Sampler
from diagevo.training.grpo import play_phase
from diagevo.training.phase import (
    OnStep,
    OnUpdate,
    Phase,
    Reward,
    Rollout,
    TrainingRow,
    TrainingSummary,
)

OnProgress = Callable[[int, int], None]
"""Called with the numbers of prompts answered and in total."""


@dataclass(frozen=True)
class VotedCandidate:
    """A candidate's votes, its label, and the construction response that gives it, kept for diagnosis. All
    None if invalid."""

    written: Written
    votes: Votes | None
    label: str | None
    reference: str | None


def play(
    context: PlayContext, phase: Phase, reward: Reward, on_step: OnStep, on_update: OnUpdate
) -> TrainingSummary:
    """GRPO in this process, where `reward` is computed, or in the run's workers, which build the reward that
    the phase names."""
    if plays_here(phase.hardware):
        return play_phase(phase, reward, on_step, context.stop, on_update)
    return context.workers.play(phase, on_step, context.stop, on_update)


def plays_here(hardware: HardwareConfig) -> bool:
    """One rank on the CPU. A GPU's memory, or an engine's, is given back by a process that ends.

    Under Ray the cluster trains: the head of one may be small.
    """
    if hardware.cluster == "ray":
        return False
    one = hardware.processes == 1 and hardware.accelerate_config is None and not hardware.colocate_vllm
    return one and uses_cpu(hardware)


class Challenger:
    """Writes questions as the method asks for them; learns to write those that it rewards."""

    def __init__(self, policy: Path, context: PlayContext) -> None:
        self.policy = policy
        self.context = context

    def train(
        self,
        asks: Sequence[Ask],
        solver: "Solver",
        round_: int,
        *,
        output: Path,
        work: Path,
        on_step: OnStep,
        on_update: OnUpdate,
    ) -> TrainingSummary:
        """GRPO on the method's reward (DiagEvo's: Equations 9-11), the frozen `solver` voting."""
        config = self.context.config
        rows = {f"r{round_}.u{ask.draw.index}": ask for ask in asks}
        given = {row: ask.given for row, ask in rows.items()}
        # Processes that train sample the solver themselves: once more here would hold it twice.
        here = plays_here(config.hardware)
        with closing(self.context.open_sampler(solver.policy)) if here else nullcontext() as sampler:
            return play(
                self.context,
                Phase(
                    start=self.policy,
                    rows=tuple(TrainingRow(row, ask.prompt, ask.part) for row, ask in rows.items()),
                    reward=self.context.challenger_reward(solver.policy, round_, given),
                    settings=config.challenger_grpo,
                    sampling=config.sampling,
                    hardware=config.hardware,
                    training=config.training,
                    output=output,
                    work=work,
                    seed=self.context.seed(round_, "challenger"),
                    in_order=self.context.method.in_order,
                ),
                self.context.method.challenger_reward(cast(Sampler, sampler), round_, given),
                on_step,
                on_update,
            )

    def write(self, asks: Sequence[Ask], round_: int, kept: Path, on_progress: OnProgress) -> list[Written]:
        """One completion each, from the updated policy; in `kept` as they come."""
        prompts = [ask.prompt for ask in asks]
        with CachedSampler(self.context.open_sampler(self.policy), kept, self.policy, on_progress) as sampler:
            groups = sampler.sample(
                prompts, n=1, params=self.context.params, seed=self.context.seed(round_, "candidates")
            )
        read = self.context.method.read
        return [read(ask, group[0].text) for ask, group in zip(asks, groups, strict=True)]


class Solver:
    """Answers questions; learns from their labels."""

    def __init__(self, policy: Path, context: PlayContext) -> None:
        self.policy = policy
        self.context = context

    def answer(
        self, candidates: Sequence[Written], round_: int, kept: Path, on_progress: OnProgress
    ) -> list[VotedCandidate]:
        """N construction responses a valid candidate, grouped by agreement, in order; in `kept` as they
        come."""
        asked = [w for w in candidates if w.question is not None]
        n, seed = self.context.config.round.responses, self.context.seed(round_, "votes")
        with CachedSampler(self.context.open_sampler(self.policy), kept, self.policy, on_progress) as sampler:
            votes, responses = self.context.method.vote(sampler, asked, n, seed)
        answered = iter(zip(votes, responses, strict=True))
        return [
            VotedCandidate(written, None, None, None)
            if written.question is None
            else self._with_reference(written, written.question, *next(answered))
            for written in candidates
        ]

    def _with_reference(
        self, written: Written, question: str, votes: Votes, responses: Sequence[Completion]
    ) -> VotedCandidate:
        """Keep the first agreeing response that ended by itself; else the first agreeing one. It agrees with
        the label: the majority, the candidate's own answer where labels are not voted, or where they are
        true, the truth."""
        voted = written.label_from in VOTES_SAY and not self.context.config.round.true_labels
        label = votes.label if voted else self._known(written, question)
        agreeing = [responses[i] for i in votes.agreeing]
        if written.task is not None:  # its answers were executed once, and stand as they came out
            groups = [answer for answer, _ in votes.votes]
            found = zip(responses, votes.members, strict=True)
            agreeing = [c for c, member in found if member is not None and groups[member] == label]
        elif not voted:
            agreeing = [c for c in responses if self._gives(c, label)]
        reference = next((c for c in agreeing if not c.truncated), agreeing[0] if agreeing else None)
        if reference is not None:
            return VotedCandidate(written, votes, label, reference.text)
        if written.label_from in ("executor", "proposer"):  # whether somebody found it or not
            return VotedCandidate(written, votes, label, f"\\boxed{{{label}}}")
        return VotedCandidate(written, votes, None, None)

    def _known(self, written: Written, question: str) -> str | None:
        """The label that is not voted."""
        if not self.context.config.round.true_labels:
            return written.answer
        assert self.context.world is not None
        return self.context.world.answer(question)

    def _gives(self, response: Completion, label: str | None) -> bool:
        return label is not None and self.context.right([(None, response.text, label)]) == [True]

    def train(
        self,
        lessons: Sequence[Lesson],
        round_: int,
        *,
        output: Path,
        work: Path,
        on_step: OnStep,
        on_update: OnUpdate,
    ) -> TrainingSummary:
        """GRPO on agreement with the label."""
        config = self.context.config
        labels = {lesson.question_id: lesson.label for lesson in lessons}
        earned = {lesson.question_id: lesson.rewards for lesson in lessons}
        tasks = {lesson.question_id: lesson.task for lesson in lessons if lesson.task is not None}
        return play(
            self.context,
            Phase(
                start=self.policy,
                rows=tuple(
                    TrainingRow(
                        lesson.question_id, self.context.templates.solver(lesson.question), lesson.part
                    )
                    for lesson in lessons
                ),
                reward=self.context.solver_reward({"labels": labels, "earned": earned, "tasks": tasks}),
                settings=config.solver_grpo,
                sampling=config.sampling,
                hardware=config.hardware,
                training=config.training,
                output=output,
                work=work,
                seed=self.context.seed(round_, "solver"),
                in_order=self.context.method.in_order,
            ),
            SolverReward(self.context, labels, earned, tasks),
            on_step,
            on_update,
        )


class SolverReward:
    """Agreement of a response's answer with its question's label."""

    def __init__(
        self,
        context: PlayContext,
        labels: Mapping[str, str],
        earned: Mapping[str, SolverRewards],
        tasks: Mapping[str, str],
    ) -> None:
        """All by row; `tasks` of those that have one (`Written.task`)."""
        self.context = context
        self.labels, self.earned, self.tasks = labels, earned, tasks

    def measure(self, rollouts: Sequence[Rollout]) -> list[bool | None]:
        """Whether each is right; None without an answer."""
        return self.context.right(
            [(self.tasks.get(r.row_id), r.text, self.labels[r.row_id]) for r in rollouts]
        )

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[bool | None]) -> list[float]:
        earned = [self.earned[rollout.row_id] for rollout in rollouts]
        return [
            each.malformed
            if right is None or (each.beside and _alone(rollout.text))
            else (each.right if right else each.wrong)
            for each, right, rollout in zip(earned, measures, rollouts, strict=True)
        ]


def _alone(response: str) -> bool:
    """Whether a response is a box and nothing else."""
    return response.strip() == f"\\boxed{{{extract_boxed(response)}}}"


def save_written(path: Path, written: Sequence[Written]) -> None:
    """One JSON object a line, written whole or not at all."""
    rows = ({"index": w.draw.index, "completion": w.completion, "invalid": w.invalid} for w in written)
    staging = path.with_name(f".staging-{path.name}")
    with open(staging, "w", encoding="utf-8", opener=private) as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    staging.replace(path)


def load_written(path: Path, asks: Sequence[Ask], method: Method) -> list[Written]:
    """What `save_written` wrote, read again as it was asked for. What was not admitted stays so."""
    with open(path, encoding="utf-8", newline="\n") as file:  # a completion may hold what else ends a line
        rows = [json.loads(line) for line in file]
    if [row["index"] for row in rows] != [ask.draw.index for ask in asks]:
        raise StoreError(
            f"{path} does not fit the schedule's draw", hint="fork the run from its last committed round"
        )
    return [_read(method, ask, row) for ask, row in zip(asks, rows, strict=True)]


def _read(method: Method, ask: Ask, row: Mapping[str, Any]) -> Written:
    written, invalid = method.read(ask, row["completion"]), row.get("invalid")
    return written if invalid is None or written.invalid is not None else refused(written, invalid)
