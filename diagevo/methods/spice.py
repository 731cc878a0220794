"""SPICE, as re-implemented in DARC's repository: the challenger sees a document and writes a question with
its answer; the reasoner answers without the document.

One model has both roles. docs/reference/spice.md lists the approximations.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, cast

from diagevo.equations.proposers import MeasuredProposal, question_reward
from diagevo.errors import ConfigError
from diagevo.memory.events import CandidateScored, InvalidReason
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.answered_questions import AnsweredQuestion
from diagevo.methods.context import PlayContext
from diagevo.methods.document_questions import AnswerKind
from diagevo.methods.interface import Ask, SolverRewards, Written
from diagevo.methods.self_play import SelfPlay
from diagevo.sampling.sampler import Sampler
from diagevo.training.phase import Reward, Rollout


class Spice(SelfPlay):
    """Each prompt shows one document of the corpus. A pool has one completion of each, and the solver
    practises it if it is valid, related or not."""

    one_model = True

    def shown(self) -> dict[str, str]:
        return {"corpus": self.context.corpus.digest} | self.context.answered.digests()

    def asks(
        self, draws: Sequence[Draw], seed: int, past: Callable[[], Sequence[str]], round_: int
    ) -> list[Ask]:
        rng, asks = Random(seed), list[Ask]()
        for draw, document in zip(draws, self.context.corpus.draw(rng, len(draws)), strict=True):
            kind = self.context.answered.kind(document, rng)
            text = self._shortened(document.text, kind)
            asks.append(Ask(draw, self.context.answered.asks(text, kind), (text, kind), kind))
        return asks

    def _shortened(self, document: str, kind: AnswerKind) -> str:
        """As much of its beginning as fits a prompt, in steps of an eighth."""
        while not self.context.fits(self.context.answered.asks(document, kind)):
            if len(document) < 8:
                raise ConfigError(
                    "no document fits a prompt of sampling.max_prompt_tokens",
                    hint="raise it: the challenger's prompt alone takes most of it",
                )
            document = document[: len(document) * 7 // 8].rstrip()
        return document

    def read(self, ask: Ask, completion: str) -> Written:
        found = read_answered(self.context, completion, ask.given)
        if not isinstance(found, AnsweredQuestion):
            return Written(ask.draw, completion, None, found, given=ask.given, part=ask.part)
        return Written(
            ask.draw,
            completion,
            found.text,
            label_from="proposer",
            answer=found.answer,
            given=ask.given,
            part=ask.part,
        )

    def challenger_reward(self, solver: Sampler, round_: int, given: Mapping[str, Sequence[str]]) -> Reward:
        return VarianceReward(self.context, solver, round_, given)

    def solver_rewards(self, scored: CandidateScored) -> SolverRewards:
        return SolverRewards(right=1.0, wrong=0.0, malformed=0.0)


def read_answered(
    context: PlayContext, completion: str, given: Sequence[str]
) -> AnsweredQuestion | InvalidReason:
    """Question and answer of a completion, given what its prompt showed, or the reason why they are
    unusable."""
    found = context.answered.read(completion, cast("AnswerKind", given[1]))
    if not isinstance(found, AnsweredQuestion):
        return found
    return context.refusal(found.text) or found


class VarianceReward:
    """The reward of the challenger's completions: the frozen solver answers each question without its
    document, and a judge says whether the two are related."""

    def __init__(
        self, context: PlayContext, solver: Sampler, round_: int, given: Mapping[str, Sequence[str]]
    ) -> None:
        self.context, self.solver, self.round, self.given = context, solver, round_, given

    def measure(self, rollouts: Sequence[Rollout]) -> list[dict[str, Any]]:
        """Of each rollout how many of the solver's answers are right, and whether its question is related."""
        found = [read_answered(self.context, r.text, self.given[r.row_id]) for r in rollouts]
        valid = {place: each for place, each in enumerate(found) if isinstance(each, AnsweredQuestion)}
        n = self.context.config.round.challenger_votes
        seed = self.context.seed(self.round, "u", rollouts[0].step if rollouts else 0)
        groups = self.context.respond(self.solver, [one.text for one in valid.values()], n, seed)
        answers = [
            (None, response.text, one.answer)
            for one, group in zip(valid.values(), groups, strict=True)
            for response in group
        ]
        right = iter(self.context.right(answers))
        shown = [(self.given[rollouts[place].row_id][0], one.text) for place, one in valid.items()]
        related = iter(self.context.related(shown))
        measured = [MeasuredProposal(None)] * len(rollouts)
        for place in valid:
            agree = sum(next(right) is True for _ in range(n))
            measured[place] = MeasuredProposal(agree, n, next(related))
        return [one._asdict() for one in measured]

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[Mapping[str, Any]]) -> list[float]:
        step = [MeasuredProposal(**one) for one in measures]
        return [question_reward(one.accuracy, one.related) for one in step]
