"""The two models that learn: the challenger writes questions, the solver answers them.

Each is a policy folder that is sampled and updated by GRPO. Memory guides the challenger alone; the solver is
shown questions and nothing else.

Long, but one file: both are sampled and trained by the same phase, and each is read beside the other.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

from diagevo.answers.equivalence import AnswerChecker, extract_boxed
from diagevo.answers.votes import Votes
from diagevo.config.models import Config, HardwareConfig
from diagevo.equations.repetition import shares
from diagevo.equations.rewards import challenger_rewards, solver_rewards
from diagevo.errors import StoreError
from diagevo.memory.events import InvalidReason
from diagevo.memory.state.projected_schedule import Draw
from diagevo.private import private
from diagevo.progress import StopFlag
from diagevo.sampling.cached_sampler import CachedSampler
from diagevo.sampling.device import uses_cpu
from diagevo.sampling.engine import Engine
from diagevo.sampling.sampler import Completion, Resumable, Sampler, SamplingParams
from diagevo.selfplay.questions import PromptTemplates, parse_question
from diagevo.training.grpo import play_phase
from diagevo.training.phase import (
    OnStep,
    OnUpdate,
    Phase,
    Reward,
    RewardSpec,
    Rollout,
    TrainingRow,
    TrainingSummary,
)
from diagevo.training.workers import Workers

OnProgress = Callable[[int, int], None]
"""Called with how many prompts are answered, of how many."""


class World(Protocol):
    """A world that can compute the truth: it refuses questions outside it, and measures labels."""

    def answer(self, question: str) -> str | None:
        """The true answer; None where the question is outside the world."""
        ...


class PlayContext(ABC):
    """What both players use: configuration, prompts, answer checker, a way to serve a policy, world."""

    config: Config
    stop: StopFlag
    templates: cached_property[PromptTemplates]
    checker: cached_property[AnswerChecker]
    world: cached_property[World | None]
    workers: cached_property[Workers]

    @abstractmethod
    def open_sampler(self, policy: Path) -> Resumable:
        """Who samples a policy in a stage in which nothing trains."""

    @abstractmethod
    def challenger_reward(self, solver: Path, round_: int) -> RewardSpec:
        """The challenger's reward for processes of training, which sample the solver themselves."""

    @abstractmethod
    def is_held_out(self, question: str) -> bool:
        """Whether the validation set, which is never trained on, has this question."""

    @abstractmethod
    def fits(self, question: str) -> bool:
        """Whether the solver's prompt for a question is within `sampling.max_prompt_tokens`."""

    @abstractmethod
    def write_documents(self, file: Path) -> None:
        """The documents of a warm start, as JSONL of chat turns."""

    @property
    def params(self) -> SamplingParams:
        sampling = self.config.sampling
        return SamplingParams(sampling.temperature, sampling.top_p, sampling.max_new_tokens)

    def seed(self, *parts: object) -> int:
        """A seed of its own for each draw of the run, from the run's seed and what the draw is for."""
        text = json.dumps([self.config.seed, *map(str, parts)])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")

    def read_question(self, completion: str) -> tuple[str | None, InvalidReason | None]:
        """The question in a challenger's completion; where there is none that may be used, why.

        One of the validation set must not be trained on, one that is longer than a prompt may be can be
        neither answered nor practised, and a question outside the world has no answer.
        """
        question = parse_question(completion)
        if question is None:
            return None, "unreadable"
        if self.config.round.boxed_answers and extract_boxed(completion) is None:
            return None, "unanswered"
        if self.is_held_out(question):
            return None, "held_out"
        if not self.fits(question):
            return None, "too_long"
        if self.world is not None and self.world.answer(question) is None:
            return None, "outside_world"
        return question, None


@dataclass(frozen=True)
class Written:
    """A candidate as the challenger wrote it."""

    draw: Draw
    completion: str
    question: str | None
    """None: no question that may be used, the candidate is invalid."""
    invalid: InvalidReason | None = None


@dataclass(frozen=True)
class VotedCandidate:
    """A candidate's votes, its label, and the construction response that gives it, kept for diagnosis. All
    None if invalid."""

    written: Written
    votes: Votes | None
    label: str | None
    reference: str | None


@dataclass(frozen=True)
class Lesson:
    """A retained question with its pseudo-label, ready for solver training."""

    question_id: str
    question: str
    label: str
    reference: str
    """Digest of the reference trajectory."""


def play(
    context: PlayContext, phase: Phase, reward: Reward, on_step: OnStep, on_update: OnUpdate
) -> TrainingSummary:
    """GRPO here, where `reward` is computed, or by the run's workers, which build what the phase names."""
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
    """Writes questions from the schedule's draw; learns to write uncertain, varied ones."""

    def __init__(self, policy: Path, context: PlayContext) -> None:
        self.policy = policy
        self.context = context

    def train(
        self,
        plan: Sequence[Draw],
        solver: "Solver",
        round_: int,
        *,
        output: Path,
        work: Path,
        on_step: OnStep,
        on_update: OnUpdate,
    ) -> TrainingSummary:
        """GRPO on uncertainty and repetition (Equations 9-11), the frozen `solver` voting."""
        config = self.context.config
        # Processes that train sample the solver themselves: once more here would hold it twice.
        here = plays_here(config.hardware)
        with closing(self.context.open_sampler(solver.policy)) if here else nullcontext() as sampler:
            return play(
                self.context,
                Phase(
                    start=self.policy,
                    rows=tuple(
                        TrainingRow(f"r{round_}.u{draw.index}", self.context.templates.challenger(draw))
                        for draw in plan
                    ),
                    reward=self.context.challenger_reward(solver.policy, round_),
                    settings=config.challenger_grpo,
                    sampling=config.sampling,
                    hardware=config.hardware,
                    training=config.training,
                    output=output,
                    work=work,
                    seed=self.context.seed(round_, "challenger"),
                ),
                ChallengerReward(self.context, cast(Sampler, sampler), round_),
                on_step,
                on_update,
            )

    def write(self, plan: Sequence[Draw], round_: int, kept: Path, on_progress: OnProgress) -> list[Written]:
        """One completion a draw, from the updated policy; in `kept` as they come."""
        prompts = [self.context.templates.challenger(draw) for draw in plan]
        with CachedSampler(self.context.open_sampler(self.policy), kept, self.policy, on_progress) as sampler:
            groups = sampler.sample(
                prompts, n=1, params=self.context.params, seed=self.context.seed(round_, "candidates")
            )
        texts = [group[0].text for group in groups]
        return [
            Written(draw, text, *self.context.read_question(text))
            for draw, text in zip(plan, texts, strict=True)
        ]


class ChallengerReward:
    """The paper's challenger reward in the trainer's halves: votes on a slice, clusters over the batch."""

    def __init__(self, context: PlayContext, solver: Sampler, round_: int) -> None:
        self.context = context
        self.solver = solver
        self.round = round_

    def measure(self, rollouts: Sequence[Rollout]) -> list[dict[str, Any]]:
        """The question of each rollout and its majority share among the frozen solver's votes."""
        questions = [self.context.read_question(rollout.text)[0] for rollout in rollouts]
        asked = [question for question in questions if question is not None]
        step = rollouts[0].step if rollouts else 0
        votes = iter(
            vote(
                self.context,
                self.solver,
                asked,
                self.context.config.round.challenger_votes,
                self.context.seed(self.round, "u", step),
            )[0]
        )
        return [
            {"question": question, "p1": None if question is None else str(next(votes).p1)}
            for question in questions
        ]

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[Mapping[str, Any]]) -> list[float]:
        """Equation 11 over the whole step. An unreadable completion stands alone among B."""
        readable = [i for i, measure in enumerate(measures) if measure["question"] is not None]
        settings = self.context.config.reward
        questions = [measures[i]["question"] for i in readable]
        of_readable = shares(questions, settings.cluster_distance, settings.bleu)
        share_B = [1 / len(measures)] * len(measures)
        for i, share in zip(readable, of_readable, strict=True):
            share_B[i] = float(share) * len(readable) / len(measures)
        p1s = [None if measure["p1"] is None else Fraction(measure["p1"]) for measure in measures]
        return challenger_rewards(p1s, share_B, settings.repetition_weight)


class Solver:
    """Answers questions; learns from its own majorities."""

    def __init__(self, policy: Path, context: PlayContext) -> None:
        self.policy = policy
        self.context = context

    def answer(
        self, candidates: Sequence[Written], round_: int, kept: Path, on_progress: OnProgress
    ) -> list[VotedCandidate]:
        """N construction responses a valid candidate, grouped by agreement, in order; in `kept` as they
        come."""
        questions = [written.question for written in candidates if written.question is not None]
        n = self.context.config.round.responses
        with CachedSampler(self.context.open_sampler(self.policy), kept, self.policy, on_progress) as sampler:
            votes, responses = vote(self.context, sampler, questions, n, self.context.seed(round_, "votes"))
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
        the label: the majority, or where labels are true, the truth."""
        label, agreeing = votes.label, [responses[i] for i in votes.agreeing]
        if self.context.config.round.true_labels:
            assert self.context.world is not None
            label = self.context.world.answer(question)
            agreeing = [c for c in responses if self._gives(c, label)]
        reference = next((c for c in agreeing if not c.truncated), agreeing[0] if agreeing else None)
        if reference is None:
            return VotedCandidate(written, votes, None, None)
        return VotedCandidate(written, votes, label, reference.text)

    def _gives(self, response: Completion, label: str | None) -> bool:
        answer = extract_boxed(response.text)
        return answer is not None and label is not None and self.context.checker.agree(answer, label)

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
        """GRPO on agreement with the pseudo-label: +1 or -1."""
        config = self.context.config
        labels = {lesson.question_id: lesson.label for lesson in lessons}
        return play(
            self.context,
            Phase(
                start=self.policy,
                rows=tuple(
                    TrainingRow(lesson.question_id, self.context.templates.solver(lesson.question))
                    for lesson in lessons
                ),
                reward=RewardSpec("diagevo.loop.players:solver_reward", {"labels": labels}),
                settings=config.solver_grpo,
                sampling=config.sampling,
                hardware=config.hardware,
                training=config.training,
                output=output,
                work=work,
                seed=self.context.seed(round_, "solver"),
            ),
            SolverReward(labels, self.context.checker),
            on_step,
            on_update,
        )


class SolverReward:
    """Agreement of a response with its question's pseudo-label. A response without a box fails."""

    def __init__(self, labels: Mapping[str, str], checker: AnswerChecker) -> None:
        self.labels = labels
        self.checker = checker

    def measure(self, rollouts: Sequence[Rollout]) -> list[bool]:
        answers = [extract_boxed(rollout.text) for rollout in rollouts]
        labels = [self.labels[rollout.row_id] for rollout in rollouts]
        boxed = [(answer, label) for answer, label in zip(answers, labels, strict=True) if answer is not None]
        agrees = iter(self.checker.agree_many(boxed))
        return [answer is not None and next(agrees) for answer in answers]

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[bool]) -> list[float]:
        return solver_rewards(measures)


def solver_reward(labels: Mapping[str, str], stop: StopFlag, engine: Engine | None = None) -> SolverReward:
    """The solver's reward in a process of its own, which needs no engine."""
    return SolverReward(labels, AnswerChecker(stop=stop))


def vote(
    context: PlayContext, sampler: Sampler, questions: Sequence[str], n: int, seed: int
) -> tuple[list[Votes], list[list[Completion]]]:
    """n responses a question and their votes."""
    responses = sampler.sample(
        [context.templates.solver(q) for q in questions], n=n, params=context.params, seed=seed
    )
    answers = [[extract_boxed(c.text) for c in group] for group in responses]
    return context.checker.group(answers), responses


def save_written(path: Path, written: Sequence[Written]) -> None:
    """One JSON object a line, written whole or not at all."""
    rows = ({"index": w.draw.index, "completion": w.completion} for w in written)
    staging = path.with_name(f".staging-{path.name}")
    with open(staging, "w", encoding="utf-8", opener=private) as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    staging.replace(path)


def load_written(path: Path, plan: Sequence[Draw], context: PlayContext) -> list[Written]:
    """What `save_written` wrote, beside the same draw."""
    with open(path, encoding="utf-8", newline="\n") as file:  # a completion may hold what else ends a line
        rows = [json.loads(line) for line in file]
    if [row["index"] for row in rows] != [draw.index for draw in plan]:
        raise StoreError(
            f"{path} does not fit the schedule's draw", hint="fork the run from its last committed round"
        )
    return [
        Written(draw, row["completion"], *context.read_question(row["completion"]))
        for draw, row in zip(plan, rows, strict=True)
    ]
