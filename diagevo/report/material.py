"""What a report is made of: one pass over a run's log, its evaluations and its oracle, as plain rows."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from sqlalchemy import select

from diagevo.answers.equivalence import AnswerChecker
from diagevo.arithmetic import WRITES
from diagevo.evaluation.oracle import LabelAccuracy, Oracle
from diagevo.evaluation.store import Evaluation, EvaluationStore
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import History
from diagevo.memory.log.artifacts import ARTIFACT
from diagevo.memory.log.database import Database
from diagevo.memory.log.tables import CauseHistoryRow, table
from diagevo.memory.read.rounds import Validation, measurements, rounds
from diagevo.memory.state.stored_config import Configured
from diagevo.progress import RoundFigures

HISTORY = table(CauseHistoryRow)


@dataclass(frozen=True, slots=True)
class Candidate:
    round: int
    question_id: str
    text: str
    mode: str
    cause_id: str | None
    verdict: str
    responses: int
    first: int
    label_true: bool | None
    answered: bool = False
    """Whether the world computed its answer."""
    stitched_cause_id: str | None = None


@dataclass(frozen=True, slots=True)
class CauseRound:
    """A cause after the commit of a round."""

    round: int
    cause_id: str
    description: str
    node: str


@dataclass(frozen=True, slots=True)
class Promotion:
    round: int
    cause_id: str
    consistency: Fraction
    questions: int


@dataclass(frozen=True)
class Material:
    """Everything the figures show of one run, up to its last commit."""

    run_id: str
    configuration: events.RunConfigured | None
    rounds: tuple[RoundFigures, ...] = ()
    configured: dict[int, Configured] = field(default_factory=dict)
    """In force in each round; a fork may have changed it."""
    candidates: tuple[Candidate, ...] = ()
    causes: tuple[CauseRound, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    seconds: tuple[tuple[int, str, float], ...] = ()
    """Round, what the time went to (`selection.COMPONENTS`), and how much."""
    validations: tuple[Validation, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    labels: tuple[LabelAccuracy, ...] = ()
    origins: dict[str, str] = field(default_factory=dict)
    """The failure that each cause was created for."""
    trajectories: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of the causes that were promoted: by that failure, what failed, and the response that it was compared
    with."""
    agreeing: dict[str, str] = field(default_factory=dict)
    """Of the promoted causes' kept questions: the response that stands for the majority."""
    ingested: bool = False
    """Its rollouts are another trainer's."""

    @property
    def next_round(self) -> str:
        """The command by which another round comes."""
        if self.ingested:
            run = self.run_id
            return f"diagevo ingest FORMAT PATH --run {run}, then: diagevo diagnose --run {run}"
        rounds = f" --rounds {self.rounds[-1].round + 1}" if self.rounds else ""
        return f"diagevo train --run {self.run_id} --resume{rounds}"

    @property
    def config(self) -> dict[str, Any]:
        return {} if self.configuration is None else self.configuration.config

    @property
    def world(self) -> str | None:
        return self.config.get("world")

    @property
    def setting(self) -> str:
        """Where the figures were measured, for captions."""
        if self.world is not None:
            return f"Run {self.run_id}, {self.world} world (a small laboratory: {WRITES})."
        models = {} if self.configuration is None else self.configuration.models
        return (
            f"Run {self.run_id}, solver {models['solver'].name}."
            if "solver" in models
            else f"Run {self.run_id}."
        )

    def questions(self, round: int) -> list[Candidate]:
        """The round's readable questions."""
        return [c for c in self.candidates if c.round == round and c.verdict != "invalid"]


def gather(history: History) -> Material:
    """Read a run. Rounds that are still open are left out."""
    committed = {commit.round for commit in history.commits}
    scored: list[tuple[int, events.CandidateScored]] = []
    promotions: list[Promotion] = []
    origins: dict[str, str] = {}
    seconds: dict[tuple[int, str], float] = defaultdict(float)
    in_force: dict[int, Configured] = {}
    for recorded in history.events(
        events.RoundOpened,
        events.CandidateScored,
        events.CausePromoted,
        events.CauseCreated,
        events.StageCompleted,
        events.StageAbandoned,
    ):
        number = recorded.round
        if number and number not in committed:
            continue
        match recorded.event:
            case events.RoundOpened():
                in_force[number] = history.in_force(recorded.position)
            case events.CandidateScored() as event:
                scored.append((number, event))
            case events.CausePromoted() as event:
                share = Fraction(event.consistency)
                promotions.append(Promotion(number, event.cause_id, share, event.questions))
            case events.CauseCreated() as event:
                origins[event.cause_id] = event.failure_id
            case events.StageCompleted(seconds=float()) as event:
                for part, spent in spent_on(event):
                    seconds[number, part] += spent
            case events.StageAbandoned(seconds=float(spent)):
                seconds[number, "abandoned"] += spent
    causes = _causes(history)
    texts = _texts(history.database, [event.question for _, event in scored])
    compared, agreeing = _trajectories(history, origins, scored, promotions)
    with AnswerChecker() as checker:
        labels = Oracle(history.database, history.run_id).accuracy(checker)
    return Material(
        run_id=history.run_id,
        configuration=history.configurations[-1].event if history.configurations else None,
        rounds=tuple(rounds(history)),
        configured=in_force,
        candidates=tuple(_candidate(number, event, texts) for number, event in scored),
        causes=tuple(causes),
        promotions=tuple(promotions),
        seconds=tuple((number, stage, spent) for (number, stage), spent in seconds.items()),
        validations=tuple(one for one in measurements(history) if one.round in {0, *committed}),
        evaluations=tuple(e for e in EvaluationStore(history.database).list(history.run_id) if e.metrics),
        labels=tuple(labels),
        origins=origins,
        trajectories=compared,
        agreeing=agreeing,
        ingested=any(True for _ in history.log.read(history.run_id, types=["GroupIngested"], limit=1)),
    )


def spent_on(done: events.StageCompleted) -> Iterator[tuple[str, float]]:
    """A stage's wall time by what it went to, and what went before it. What the solver's stage waited for the
    diagnostician is time of extraction, and what went on beside training took none."""
    whole, parts = done.seconds or 0.0, {name: s for name, s in done.parts.items() if name != "cpu"}
    outside = {"beside training": "beside training", "orchestration": "orchestration", "scheduling": "update"}
    for part, name in outside.items():
        if spent := parts.pop(part, 0.0):
            yield name, spent
    yield from parts.items()
    rest = whole - sum(parts.values())
    yield "update" if done.stage == "diagnosis" else done.stage, max(0.0, rest)


def _trajectories(
    history: History,
    origins: dict[str, str],
    scored: Sequence[tuple[int, events.CandidateScored]],
    promotions: Sequence[Promotion],
) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """The texts of the case study."""
    causes = {promotion.cause_id for promotion in promotions}
    wanted = {origins[cause] for cause in causes}
    failed = {
        event.failure_id: (event.trajectory, event.reference)
        for fact in history.events(events.FailureObserved)
        if (event := fact.event).failure_id in wanted
    }
    kept = {
        event.question_id: event.reference
        for _, event in scored
        if event.cause_id in causes and event.verdict == "kept" and event.reference is not None
    }
    texts = _texts(history.database, [*(d for pair in failed.values() for d in pair if d), *kept.values()])
    return (
        {name: (texts.get(a, ""), texts.get(b or "", "")) for name, (a, b) in failed.items()},
        {name: texts.get(digest, "") for name, digest in kept.items()},
    )


def _candidate(number: int, event: events.CandidateScored, texts: dict[str, str]) -> Candidate:
    return Candidate(
        round=number,
        question_id=event.question_id,
        text=texts.get(event.question, ""),
        mode=event.mode,
        cause_id=event.cause_id,
        verdict=event.verdict,
        responses=event.responses,
        first=event.first,
        label_true=event.label_true,
        answered=event.truth is not None,
        stitched_cause_id=event.stitched_cause_id,
    )


def _causes(history: History) -> list[CauseRound]:
    query = (
        select(
            HISTORY.c.round,
            HISTORY.c.cause_id,
            HISTORY.c.description,
            HISTORY.c.node_label,
        )
        .where(HISTORY.c.run_id == history.run_id)
        .order_by(HISTORY.c.round)
    )
    with history.database.read() as connection:
        return [CauseRound(*row) for row in connection.execute(query)]


def _texts(database: Database, digests: Sequence[str]) -> dict[str, str]:
    """The texts of questions, read in bulk."""
    wanted = list(dict.fromkeys(digests))
    found: dict[str, str] = {}
    with database.read() as connection:
        for start in range(0, len(wanted), 500):
            query = select(ARTIFACT.c.digest, ARTIFACT.c.content).where(
                ARTIFACT.c.digest.in_(wanted[start : start + 500])
            )
            found.update((row.digest, bytes(row.content).decode()) for row in connection.execute(query))
    return found
