"""DiagEvo and R-Zero: the schedule's draw is the prompt, the majority is the label. They differ only in
settings (`config/methods/r-zero.yaml`): R-Zero's schedule is free, so its memory guides nothing."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from diagevo.answers.votes import Votes
from diagevo.diagnosis.embedder import Embedder
from diagevo.equations.repetition import shares
from diagevo.equations.rewards import challenger_rewards, solver_rewards
from diagevo.memory.events import CandidateScored
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.context import PlayContext
from diagevo.methods.interface import BOTH, Ask, Role, SolverRewards, Written
from diagevo.sampling.sampler import Completion, Sampler
from diagevo.training.phase import Reward, Rollout


class SelfPlay:
    """The paper's method, and the base class of those that differ from it in some verbs."""

    one_model = in_order = False

    def __init__(self, context: PlayContext) -> None:
        self.context = context

    def learns(self, round_: int) -> tuple[Role, ...]:
        return BOTH

    def shown(self) -> dict[str, str]:
        return {}

    def asks(
        self, draws: Sequence[Draw], seed: int, past: Callable[[], Sequence[str]], round_: int
    ) -> list[Ask]:
        return [Ask(draw, self.context.templates.challenger(draw)) for draw in draws]

    def read(self, ask: Ask, completion: str) -> Written:
        question, invalid = self.context.read_question(completion)
        return Written(ask.draw, completion, question, invalid, given=ask.given)

    def admit(self, written: Sequence[Written], embedder: Embedder) -> list[Written]:
        return list(written)

    def human(self, after: int, seed: int) -> list[Written]:
        return []

    def vote(
        self, solver: Sampler, asked: Sequence[Written], n: int, seed: int
    ) -> tuple[list[Votes], list[list[Completion]]]:
        questions = [w.question for w in asked if w.question is not None]
        return self.context.vote(solver, questions, n, seed, [w.task for w in asked])

    def challenger_reward(self, solver: Sampler, round_: int, given: Mapping[str, Sequence[str]]) -> Reward:
        return ChallengerReward(self.context, solver, round_)

    def solver_rewards(self, scored: CandidateScored) -> SolverRewards:
        right, wrong = solver_rewards([True, False])
        return SolverRewards(right, wrong, malformed=wrong)


class ChallengerReward:
    """The paper's challenger reward in the trainer's two halves: votes per slice, clusters over the batch."""

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
            self.context.vote(
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
