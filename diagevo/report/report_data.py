"""The data of a report: rows of a run's views, its evaluations and its oracle."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeVar

from diagevo.answers.equivalence import AnswerChecker
from diagevo.arithmetic import WRITES
from diagevo.evaluation.oracle import LabelAccuracy, Oracle
from diagevo.evaluation.store import Evaluation, EvaluationStore
from diagevo.memory.events import CauseAdded, CauseCreated, RunConfigured
from diagevo.memory.history import History
from diagevo.memory.read.asking import select_rows
from diagevo.memory.read.opened_rounds import opened_rounds
from diagevo.memory.read.round_figures import Validation, measurements, rounds
from diagevo.memory.state.stored_config import Configured
from diagevo.progress import RoundFigures

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Candidate:
    """`v_question`."""

    round: int
    question_id: str
    text: str
    mode: str
    cause_id: str | None
    verdict: str
    responses: int
    first: int
    label_true: bool | None
    truth: str | None = None
    """If the world computed its answer."""
    stitched_cause_id: str | None = None


@dataclass(frozen=True, slots=True)
class CauseRound:
    """`v_cause_history`: a cause after the commit of a round."""

    round: int
    cause_id: str
    description: str
    node_label: str


@dataclass(frozen=True, slots=True)
class Promotion:
    """`v_promotion`."""

    round: int
    cause_id: str
    consistency: Fraction
    questions: int


@dataclass(frozen=True, slots=True)
class StageTime:
    """`v_stage`: an attempt that ended."""

    round: int
    stage: str
    ended: str
    seconds: float | None
    parts: dict[str, float] | None


@dataclass(frozen=True, slots=True)
class _First:
    """`v_trajectory`: the failure that a cause was created for."""

    failure_id: str
    trajectory: str | None
    reference: str | None


@dataclass(frozen=True, slots=True)
class _Kept:
    """`v_candidate`."""

    question_id: str
    cause_id: str
    reference: str


@dataclass(frozen=True)
class Material:
    """Everything that the figures need from one run, up to its last commit."""

    run_id: str
    configuration: RunConfigured | None
    rounds: tuple[RoundFigures, ...] = ()
    configured: dict[int, Configured] = field(default_factory=dict)
    """In force in each round; a fork may have changed it."""
    candidates: tuple[Candidate, ...] = ()
    causes: tuple[CauseRound, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    seconds: tuple[tuple[int, str, float], ...] = ()
    """Round, component (`selection.COMPONENTS`), and seconds."""
    validations: tuple[Validation, ...] = ()
    evaluations: tuple[Evaluation, ...] = ()
    labels: tuple[LabelAccuracy, ...] = ()
    origins: dict[str, str] = field(default_factory=dict)
    """The failure that each cause was created for."""
    trajectories: dict[str, tuple[str, str]] = field(default_factory=dict)
    """For promoted causes, by that failure: the failed response, and the one it was compared with."""
    agreeing: dict[str, str] = field(default_factory=dict)
    """For the promoted causes' kept questions: the response that represents the majority."""
    ingested: bool = False
    """Whether its rollouts are another trainer's."""

    @property
    def next_round(self) -> str:
        """The command for another round."""
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
        """The setting of the figures, for captions."""
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
    done, last = "round <= :last", {"last": max(committed, default=0)}

    def rows(view: str, row: type[R], only: str = "") -> list[R]:
        return select_rows(history, view, row, done + only, last, order="position")

    promotions = rows("v_promotion", Promotion)
    seconds: dict[tuple[int, str], float] = defaultdict(float)
    for stage in rows("v_stage", StageTime, " AND seconds IS NOT NULL"):
        for part, spent in spent_on(stage):
            seconds[stage.round, part] += spent
    promoted = {promotion.cause_id for promotion in promotions}
    made = history.events(CauseCreated, CauseAdded)
    origins = {fact.event.cause_id: fact.event.failure_id for fact in made}
    named = {f"f{place}": origins[cause_id] for place, cause_id in enumerate(sorted(promoted))}
    among = f"failure_id IN ({', '.join(f':{name}' for name in named)})"
    firsts = select_rows(history, "v_trajectory", _First, among, named) if named else []
    aimed = " AND verdict = 'kept' AND cause_id IS NOT NULL AND reference IS NOT NULL"
    kept = rows("v_candidate", _Kept, aimed)
    agreeing = {one.question_id: one.reference for one in kept if one.cause_id in promoted}
    texts = history.texts(list(agreeing.values()))
    with AnswerChecker() as checker:
        labels = Oracle(history.database, history.run_id).accuracy(checker)
    return Material(
        run_id=history.run_id,
        configuration=history.configurations[-1].event if history.configurations else None,
        rounds=tuple(rounds(history)),
        configured={
            one.number: one.configured
            for one in opened_rounds(history, history.end)
            if one.number in committed
        },
        candidates=tuple(replace(one, text=one.text or "") for one in rows("v_question", Candidate)),
        causes=tuple(select_rows(history, "v_cause_history", CauseRound, order="round, cause_id")),
        promotions=tuple(promotions),
        seconds=tuple((number, stage, spent) for (number, stage), spent in seconds.items()),
        validations=tuple(one for one in measurements(history) if one.round in {0, *committed}),
        evaluations=tuple(e for e in EvaluationStore(history.database).list(history.run_id) if e.metrics),
        labels=tuple(labels),
        origins=origins,
        trajectories={one.failure_id: (one.trajectory or "", one.reference or "") for one in firsts},
        agreeing={name: texts.get(digest, "") for name, digest in agreeing.items()},
        ingested=history.ingested is not None,
    )


def spent_on(done: StageTime) -> Iterator[tuple[str, float]]:
    """A stage's wall time by component, and the time before it. The solver stage's wait for the diagnostician
    counts as extraction; work that overlapped training takes no time."""
    whole, parts = done.seconds or 0.0, {n: s for n, s in (done.parts or {}).items() if n != "cpu"}
    if done.ended == "abandoned":
        yield "abandoned", whole
        return
    outside = {"beside training": "beside training", "orchestration": "orchestration", "scheduling": "update"}
    for part, name in outside.items():
        if spent := parts.pop(part, 0.0):
            yield name, spent
    yield from parts.items()
    rest = whole - sum(parts.values())
    yield "update" if done.stage == "diagnosis" else done.stage, max(0.0, rest)
