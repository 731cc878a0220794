"""What both players and every method use: configuration, prompts, answer checker, a way to serve a policy,
the world."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from diagevo.answers.equivalence import AnswerChecker
from diagevo.answers.extraction import extract_boxed
from diagevo.answers.votes import Votes, count
from diagevo.config.models import Config
from diagevo.memory.events import InvalidReason
from diagevo.methods.anchors import Anchor
from diagevo.methods.answered_questions import AnsweredQuestions
from diagevo.methods.document_corpus import Corpus
from diagevo.methods.document_questions import DocumentQuestions
from diagevo.methods.relatedness import RelatednessJudge
from diagevo.methods.tasks import TaskWorld, read_task
from diagevo.progress import StopFlag
from diagevo.sampling.sampler import Completion, Prompt, Resumable, Sampler, SamplingParams
from diagevo.selfplay.questions import PromptTemplates, parse_question
from diagevo.training.phase import RewardSpec
from diagevo.training.workers import Workers

if TYPE_CHECKING:
    from diagevo.methods.interface import Method


class World(Protocol):
    """A world that can compute the truth: it refuses questions outside it, and measures labels."""

    def answer(self, question: str) -> str | None:
        """The true answer; None if the question is outside the world."""
        ...


class PlayContext(ABC):
    """What a run's roles share; `Roles` builds it from the configuration."""

    config: Config
    stop: StopFlag
    method: "cached_property[Method]"
    templates: cached_property[PromptTemplates]
    checker: cached_property[AnswerChecker]
    world: cached_property[World | None]
    workers: cached_property[Workers]
    anchors: cached_property[list[Anchor]]
    corpus: cached_property[Corpus]
    questions: cached_property[DocumentQuestions]
    """How DARC asks for questions from documents."""
    answered: cached_property[AnsweredQuestions]
    """How SPICE asks for questions with answers."""
    judge: cached_property[RelatednessJudge]
    tasks: cached_property[TaskWorld]
    """Where the programs of Absolute Zero run."""

    @abstractmethod
    def open_sampler(self, policy: Path) -> Resumable:
        """The sampler of a policy in a stage without training."""

    @abstractmethod
    def challenger_reward(self, solver: Path, round_: int, given: Mapping[str, Sequence[str]]) -> RewardSpec:
        """The challenger's reward for training processes, which sample the solver themselves. `given`: the
        texts that each row's prompt shows (`Ask.given`)."""

    @abstractmethod
    def solver_reward(self, given: Mapping[str, Any]) -> RewardSpec:
        """The solver's reward for training processes, from the arguments of `SolverReward`."""

    @abstractmethod
    def is_held_out(self, question: str) -> bool:
        """Whether the validation set, which is never trained on, has this question."""

    @abstractmethod
    def fits(self, prompt: Prompt) -> bool:
        """Whether a prompt is within `sampling.max_prompt_tokens`."""

    @abstractmethod
    def write_documents(self, file: Path) -> None:
        """The documents of a warm start, as JSONL of chat turns."""

    @property
    def params(self) -> SamplingParams:
        sampling = self.config.sampling
        return SamplingParams(sampling.temperature, sampling.top_p, sampling.max_new_tokens)

    def seed(self, *parts: object) -> int:
        """A separate seed for each draw of the run, from the run's seed and the purpose of the draw."""
        text = json.dumps([self.config.seed, *map(str, parts)])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")

    def read_question(self, completion: str) -> tuple[str | None, InvalidReason | None]:
        """The question in a challenger's completion, or the reason why there is no usable one."""
        question = parse_question(completion)
        if question is None:
            return None, "unreadable"
        if self.config.round.boxed_answers and extract_boxed(completion) is None:
            return None, "unanswered"
        reason = self.refusal(question)
        return (question, None) if reason is None else (None, reason)

    def refusal(self, question: str) -> InvalidReason | None:
        """Why a question may not be used.

        One of the validation set must not be trained on, one that is longer than a prompt may be can be
        neither answered nor practised, and a question outside the world has no answer.
        """
        if self.is_held_out(question):
            return "held_out"
        if not self.fits(self.templates.solver(question)):
            return "too_long"
        if self.world is not None and self.world.answer(question) is None:
            return "outside_world"
        return None

    def related(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """For each document and question, whether `roles.judge` calls them related."""
        return self.judge.related(pairs)

    def respond(
        self, sampler: Sampler, questions: Sequence[str], n: int, seed: int
    ) -> list[list[Completion]]:
        """n responses per question."""
        prompts = [self.templates.solver(question) for question in questions]
        return sampler.sample(prompts, n=n, params=self.params, seed=seed)

    def vote(
        self,
        sampler: Sampler,
        questions: Sequence[str],
        n: int,
        seed: int,
        tasks: Sequence[str | None] | None = None,
    ) -> tuple[list[Votes], list[list[Completion]]]:
        """n responses per question and their votes. `tasks`: each question's task, as in `Written`."""
        responses = self.respond(sampler, questions, n, seed)
        of = [None] * len(questions) if tasks is None else tasks
        found = iter(
            self.answers([(task, c.text) for task, group in zip(of, responses, strict=True) for c in group])
        )
        answers = [[next(found) for _ in group] for group in responses]
        # Executed results are in canonical form: equal texts mean equal values.
        read = iter(self.checker.group([a for a, task in zip(answers, of, strict=True) if task is None]))
        votes = [next(read) if t is None else count(a, eq) for a, t in zip(answers, of, strict=True)]
        return votes, responses

    def right(self, given: Sequence[tuple[str | None, str, str]]) -> list[bool | None]:
        """Whether the answer of each response is its label; None without an answer. `given`: the task if
        there is one, the response, the label."""
        answers = self.answers([(task, text) for task, text, _ in given])
        found = [(a, label) for a, (task, _, label) in zip(answers, given, strict=True) if a and task is None]
        agrees = iter(self.checker.agree_many(found))
        return [
            None if not answer else next(agrees) if task is None else answer == label
            for answer, (task, _, label) in zip(answers, given, strict=True)
        ]

    def answers(self, given: Sequence[tuple[str | None, str]]) -> list[str | None]:
        """The answer of each response: in its box, or where it belongs to a task, what that leads to."""
        tasks = [(read_task(task), text) for task, text in given if task is not None]
        executed = iter(self.tasks.answers(tasks)) if tasks else iter(())
        return [extract_boxed(text) if task is None else next(executed) for task, text in given]
