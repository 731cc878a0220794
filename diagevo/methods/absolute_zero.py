"""Absolute Zero: the challenger makes tasks about programs, and an executor gives the labels.

After the official release: three kinds of tasks, rewards by the solver's accuracy, a buffer of past tasks, no
majority and no filter by difficulty. docs/reference/absolute-zero.md lists the approximations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from diagevo.equations.proposers import MeasuredProposal, proposer_reward
from diagevo.memory.events import CandidateScored, InvalidReason
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.context import PlayContext
from diagevo.methods.interface import Ask, SolverRewards, Written
from diagevo.methods.self_play import SelfPlay
from diagevo.methods.tasks import KINDS, ProgramTask, read_task
from diagevo.sampling.sampler import Sampler
from diagevo.training.phase import Reward, Rollout

RIGHT, WRONG, MALFORMED = 1.0, -0.5, -1.0
"""The solver's rewards."""


class AbsoluteZero(SelfPlay):
    """One model in both roles. Draws are dealt to the three kinds in turn, whatever the schedule aims at."""

    one_model = True

    def shown(self) -> dict[str, str]:
        return self.context.tasks.digests()

    def asks(
        self, draws: Sequence[Draw], seed: int, past: Callable[[], Sequence[str]], round_: int
    ) -> list[Ask]:
        """Each prompt shows tasks of its kind, or for an induction one program of any kind, uniformly from
        the buffer: the newest tasks in the log, or the world's initial ones if there are none yet."""
        world, settings = self.context.tasks, self.context.config.absolute_zero
        buffer = [read_task(text) for text in past()[-settings.buffer :]] or list(world.seeds)
        rng, asks = Random(seed), []
        for draw in draws:
            kind = KINDS[draw.index % len(KINDS)]
            alike = [task for task in buffer if task.kind == kind] or list(world.seeds)
            shown = (
                [rng.choice(buffer)]
                if kind == "induction"
                else rng.sample(alike, min(settings.shown, len(alike)))
            )
            of_kind = [replace(task, kind=kind) for task in shown]
            given = tuple(task.text() for task in of_kind)
            asks.append(Ask(draw, world.asks(kind, of_kind), given, kind))
        return asks

    def read(self, ask: Ask, completion: str) -> Written:
        found = read_proposal(self.context, completion, ask.given)
        if not isinstance(found, ProgramTask):
            return Written(ask.draw, completion, None, found, given=ask.given, part=ask.part)
        return Written(
            ask.draw,
            completion,
            self.context.tasks.question(found),
            label_from="executor",
            answer=found.label,
            given=ask.given,
            task=found.text(),
            part=ask.part,
        )

    def challenger_reward(self, solver: Sampler, round_: int, given: Mapping[str, Sequence[str]]) -> Reward:
        return ProposerReward(self.context, solver, round_, given)

    def solver_rewards(self, scored: CandidateScored) -> SolverRewards:
        return SolverRewards(RIGHT, WRONG, MALFORMED)


def read_proposal(context: PlayContext, completion: str, given: Sequence[str]) -> ProgramTask | InvalidReason:
    """The task in a completion, of the same kind as the tasks shown."""
    shown = [read_task(text) for text in given]
    found = context.tasks.read(shown[0].kind, completion, shown)
    if not isinstance(found, ProgramTask):
        return found
    if any(context.is_held_out(sentence) for sentence in context.tasks.sentences(found)):
        return "held_out"
    return found if context.fits(context.templates.solver(context.tasks.question(found))) else "too_long"


class ProposerReward:
    """The reward of the challenger's tasks: the frozen solver answers each, and the executor counts how often
    it is right."""

    def __init__(
        self, context: PlayContext, solver: Sampler, round_: int, given: Mapping[str, Sequence[str]]
    ) -> None:
        self.context, self.solver, self.round, self.given = context, solver, round_, given

    def measure(self, rollouts: Sequence[Rollout]) -> list[dict[str, Any]]:
        """How many of the solver's answers to each rollout's task are right."""
        found = [read_proposal(self.context, r.text, self.given[r.row_id]) for r in rollouts]
        tasks = [task for task in found if isinstance(task, ProgramTask)]
        n = self.context.config.round.challenger_votes
        seed = self.context.seed(self.round, "u", rollouts[0].step if rollouts else 0)
        questions = [self.context.tasks.question(task) for task in tasks]
        responses = self.context.respond(self.solver, questions, n, seed)
        answers = iter(
            self.context.tasks.answers(
                [(task, each.text) for task, group in zip(tasks, responses, strict=True) for each in group]
            )
        )
        right = iter([sum(next(answers) == task.label for _ in range(n)) for task in tasks])
        return [
            MeasuredProposal(next(right), n)._asdict()
            if isinstance(task, ProgramTask)
            else MeasuredProposal(None)._asdict()
            for task in found
        ]

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[Mapping[str, Any]]) -> list[float]:
        return [proposer_reward(MeasuredProposal(**one).accuracy) for one in measures]
