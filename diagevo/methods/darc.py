"""DARC: a questioner learns to write questions of a given difficulty from documents; then it is frozen, and
the solver practises its questions from easy to hard, labelled by itself with the document in sight.

After the official release. docs/reference/darc.md lists the approximations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from random import Random
from typing import Any, NamedTuple, cast

from diagevo.answers.extraction import extract_boxed
from diagevo.answers.votes import Votes
from diagevo.diagnosis.embedder import Embedder
from diagevo.equations.darc_rewards import COPIED
from diagevo.equations.proposers import MeasuredProposal, earned
from diagevo.errors import ConfigError
from diagevo.memory.events import CandidateScored, InvalidReason
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.context import PlayContext
from diagevo.methods.document_questions import LEVELS, AnswerKind, in_form
from diagevo.methods.interface import Ask, Role, SolverRewards, Written, refused
from diagevo.methods.near_duplicates import distinct
from diagevo.methods.self_play import SelfPlay
from diagevo.sampling.sampler import Completion, Sampler, SamplingParams
from diagevo.training.phase import Reward, Rollout

RIGHT, WRONG, MALFORMED = 1.0, 0.05, 0.0
"""The solver's rewards. The format is worth a twentieth of 1: a box, and something besides it."""
LABEL_TOP_P = 0.95
"""Top-p of the responses that label a question."""
TRIED = 100
"""Consecutive documents too long for a prompt before giving up."""


class Shown(NamedTuple):
    """What a questioner's prompt shows."""

    document: str
    level: int
    kind: AnswerKind


class Darc(SelfPlay):
    """`darc.questioner_rounds` rounds of the questioner, then rounds of the solver."""

    in_order = True

    def __init__(self, context: PlayContext) -> None:
        super().__init__(context)
        self._curriculum: list[Shown] = []

    def learns(self, round_: int) -> tuple[Role, ...]:
        return ("challenger",) if round_ <= self.context.config.darc.questioner_rounds else ("solver",)

    def shown(self) -> dict[str, str]:
        return {"corpus": self.context.corpus.digest} | self.context.questions.digests()

    def asks(
        self, draws: Sequence[Draw], seed: int, past: Callable[[], Sequence[str]], round_: int
    ) -> list[Ask]:
        """While the questioner learns, each document is shown for every level in turn. Afterwards all rounds
        of the solver share one curriculum, of which each takes the next part."""
        settings, many = self.context.config, len(draws)
        if "challenger" in self.learns(round_):
            given = self._documents(seed, many)
        else:
            first = settings.darc.questioner_rounds
            rounds = settings.round.rounds - first
            if len(self._curriculum) != many * rounds:  # once a process: each of its prompts is tokenised
                whole = self._documents(self.context.seed("curriculum"), many * rounds)
                self._curriculum = sorted(whole, key=lambda one: one.level)
            start = (round_ - first - 1) % rounds * many
            given = self._curriculum[start : start + many]
        return [self._ask(draw, *one) for draw, one in zip(draws, given, strict=True)]

    def _ask(self, draw: Draw, document: str, level: int, kind: AnswerKind) -> Ask:
        part = f"level {level}"
        return Ask(draw, self.context.questions.asks(document, level, kind), (document, part, kind), part)

    def _documents(self, seed: int, count: int) -> list[Shown]:
        """Documents, levels and answer kinds for this many prompts; those of one document are adjacent."""
        rng, found, skipped, questions = Random(seed), list[Shown](), 0, self.context.questions
        while len(found) < count:
            [document] = self.context.corpus.draw(rng, 1)
            asked = [Shown(document.text, level, questions.kind(document, rng)) for level in LEVELS]
            longest = max(
                (questions.asks(*one) for one in asked), key=lambda prompt: len(prompt[-1]["content"])
            )
            if self.context.fits(longest):
                found, skipped = found + asked, 0
            elif (skipped := skipped + 1) == TRIED:
                raise ConfigError(
                    f"corpus.file: {TRIED} documents in a row do not fit a prompt",
                    hint="set corpus.characters lower, or sampling.max_prompt_tokens higher",
                )
        return found[:count]

    def read(self, ask: Ask, completion: str) -> Written:
        question, invalid = read_question(self.context, completion, ask.given)
        return Written(ask.draw, completion, question, invalid, "document", given=ask.given, part=ask.part)

    def admit(self, written: Sequence[Written], embedder: Embedder) -> list[Written]:
        """Of near-duplicates, the last one stays, which is the harder."""
        usable = [place for place, each in enumerate(written) if each.question is not None]
        if not usable:
            return list(written)
        vectors = embedder.embed([written[place].question or "" for place in usable])
        stay = {usable[place] for place in distinct(vectors, self.context.config.darc.near)}
        return [
            each if each.question is None or place in stay else refused(each, "near_duplicate")
            for place, each in enumerate(written)
        ]

    def vote(
        self, solver: Sampler, asked: Sequence[Written], n: int, seed: int
    ) -> tuple[list[Votes], list[list[Completion]]]:
        params = replace(self.context.params, top_p=LABEL_TOP_P)
        seen = [(each.question or "", each.given[0]) for each in asked]
        return informed_votes(self.context, solver, seen, n, params, seed)

    def challenger_reward(self, solver: Sampler, round_: int, given: Mapping[str, Sequence[str]]) -> Reward:
        return QuestionerReward(self.context, solver, round_, given)

    def solver_rewards(self, scored: CandidateScored) -> SolverRewards:
        return SolverRewards(RIGHT, WRONG, MALFORMED, beside=True)


def _shown(given: Sequence[str]) -> Shown:
    document, level, kind = given
    return Shown(document, int(level.removeprefix("level ")), cast("AnswerKind", kind))


def read_question(
    context: PlayContext, completion: str, given: Sequence[str]
) -> tuple[str | None, InvalidReason | None]:
    """The question in a completion, or the reason why there is no usable one."""
    shown = _shown(given)
    question = context.questions.read(completion, shown.kind)
    if question is None:
        return None, "unreadable"
    reason = context.refusal(question)
    if reason is None and not context.fits(context.questions.informed(question, shown.document)):
        reason = "too_long"
    return (question, None) if reason is None else (None, reason)


def informed_votes(
    context: PlayContext,
    solver: Sampler,
    seen: Sequence[tuple[str, str]],
    n: int,
    params: SamplingParams,
    seed: int,
) -> tuple[list[Votes], list[list[Completion]]]:
    """n responses to each question with its document in sight, and their votes."""
    prompts = [context.questions.informed(question, document) for question, document in seen]
    responses = solver.sample(prompts, n=n, params=params, seed=seed)
    return context.checker.group([[_answer(c.text) for c in group] for group in responses]), responses


def _answer(response: str) -> str | None:
    """The answer in its box. "None" is not an answer."""
    box = extract_boxed(response)
    return None if box is None or box.strip().lower() in ("", "none") else box


class QuestionerReward:
    """The reward of the questioner's completions: the frozen solver labels each question with the
    document in sight, and answers it without."""

    def __init__(
        self, context: PlayContext, solver: Sampler, round_: int, given: Mapping[str, Sequence[str]]
    ) -> None:
        self.context, self.solver, self.round, self.given = context, solver, round_, given

    def measure(self, rollouts: Sequence[Rollout]) -> list[dict[str, Any]]:
        """Of each rollout how many answers are right, and for which document and level it was asked."""
        step = rollouts[0].step if rollouts else 0
        asked = [_shown(self.given[rollout.row_id]) for rollout in rollouts]
        found = [
            MeasuredProposal(None, level=one.level, document=sha256(one.document.encode()).hexdigest())
            for one in asked
        ]
        usable = self._labelled(rollouts, step)
        n, seed = self.context.config.round.challenger_votes, self.context.seed(self.round, "u", step)
        questions = [question for question, _ in usable.values()]
        groups = self.context.respond(self.solver, questions, n, seed)
        for place, (_, label), group in zip(usable, usable.values(), groups, strict=True):
            if (counts := self._counts([c.text for c in group], label)) is not None:
                right, answers = counts
                found[place] = found[place]._replace(right=right, answers=answers)
        return [one._asdict() for one in found]

    def _labelled(self, rollouts: Sequence[Rollout], step: int) -> dict[int, tuple[str, str]]:
        """Question and label of each rollout whose question belongs to its document, is not a copy, and has
        a label of the requested kind."""
        asked: dict[int, str] = {}
        for place, rollout in enumerate(rollouts):
            given = self.given[rollout.row_id]
            question = read_question(self.context, rollout.text, given)[0]
            if question is not None and self.context.questions.copied(given[0], question) <= COPIED:
                asked[place] = question
        seen = [(question, self.given[rollouts[place].row_id][0]) for place, question in asked.items()]
        related = self.context.related([(document, question) for question, document in seen])
        n, seed = self.context.config.round.challenger_votes, self.context.seed(self.round, "labels", step)
        votes, _ = informed_votes(self.context, self.solver, seen, n, self.context.params, seed)
        labelled: dict[int, tuple[str, str]] = {}
        for (place, question), vote, belongs in zip(asked.items(), votes, related, strict=True):
            label = None
            if vote.label is not None and belongs:
                label = in_form(vote.label, _shown(self.given[rollouts[place].row_id]).kind)
            if label is not None:
                labelled[place] = (question, label)
        return labelled

    def _counts(self, responses: Sequence[str], label: str) -> tuple[int, int] | None:
        """How many responses agree with the label, and how many have a box; None where none has an answer."""
        boxes = [box for response in responses if (box := extract_boxed(response))]
        answers = [box for box in boxes if box.strip().lower() != "none"]
        if not answers:
            return None
        right = self.context.checker.agree_many([(answer, label) for answer in answers])
        return sum(right), len(boxes)

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[Mapping[str, Any]]) -> list[float]:
        return earned("darc", [MeasuredProposal(**one) for one in measures]) or []
