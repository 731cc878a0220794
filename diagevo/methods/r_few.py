"""After R-Few's description: R-Zero's round, in which human-labelled items guide the challenger as
examples and are practised with the questions that it writes."""

import hashlib
import json
from collections.abc import Callable, Sequence
from random import Random

from diagevo.equations.rewards import weighted_rewards
from diagevo.memory.events import CandidateScored
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.context import PlayContext
from diagevo.methods.interface import Ask, SolverRewards, Written
from diagevo.methods.self_play import SelfPlay


class RFew(SelfPlay):
    """A prompt shows between zero and `anchors.shown` items; `anchors.practised` of them join each round's
    pool."""

    def __init__(self, context: PlayContext) -> None:
        super().__init__(context)
        self.anchors = context.anchors

    def shown(self) -> dict[str, str]:
        items = json.dumps([(anchor.question, anchor.answer) for anchor in self.anchors])
        return {"anchors": hashlib.sha256(items.encode()).hexdigest()}

    def asks(
        self, draws: Sequence[Draw], seed: int, past: Callable[[], Sequence[str]], round_: int
    ) -> list[Ask]:
        rng, most = Random(seed), min(self.context.config.anchors.shown, len(self.anchors))
        asks: list[Ask] = []
        for draw in draws:
            examples = rng.sample(self.anchors, rng.randint(0, most))
            questions = tuple(anchor.question for anchor in examples)
            asks.append(Ask(draw, self.context.templates.anchored(draw, questions), questions))
        return asks

    def human(self, after: int, seed: int) -> list[Written]:
        wanted = self.context.config.anchors.practised
        items = self.anchors
        if wanted is not None and wanted < len(items):
            items = Random(seed).sample(items, wanted)
        return [
            Written(Draw(index, "free"), "", item.question, label_from="human", answer=item.answer)
            for index, item in enumerate(items, after)
        ]

    def solver_rewards(self, scored: CandidateScored) -> SolverRewards:
        weight = self.context.config.anchors.weight if scored.label_from == "human" else 0.0
        right, wrong = weighted_rewards([True, False], weight)
        return SolverRewards(right, wrong, malformed=wrong)
