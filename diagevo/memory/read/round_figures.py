"""The figures of a run's committed rounds, and the measurements of its solver."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from typing import Any

from diagevo.equations.schedule import z
from diagevo.memory.events import RoundOpened
from diagevo.memory.history import History
from diagevo.memory.log.tables import RoundCounts
from diagevo.memory.read.asking import filled, select_rows
from diagevo.progress import RoundFigures

MEAN = "mean_at_k"


class _Round(RoundCounts):
    """`v_round`."""

    position: int
    failures: int
    reference_failures: int | None
    epsilon_committed: Fraction
    """ε of the next round."""
    active: int
    mastered: int
    nodes: int
    committed_at: str
    superseded_by: int | None

    @property
    def verdicts(self) -> dict[str, int]:
        """Those that occur."""
        names = ("kept", "too_easy", "too_hard", "contested", "no_label", "invalid")
        return {name: number for name in names if (number := getattr(self, name))}


def rounds(history: History, number: int | None = None, *, superseded: bool = False) -> list[RoundFigures]:
    """The committed rounds that count, in order, or one round; with `superseded` also those that no
    longer count."""
    counted = "" if superseded else "superseded_by IS NULL"
    only = counted if number is None else "round = :number"
    found = select_rows(history, "v_round", _Round, only, {"number": number}, order="round")
    measured, stages = validations(history, number), _stages(history, number)
    after = None if number is None else _following(history.superseded(), number)
    drawn = {fact.round: Fraction(fact.event.epsilon) for fact in history.events(RoundOpened, round=after)}
    return [_figures(history, one, measured.get(one.round, {}), stages[one.round], drawn) for one in found]


def _figures(
    history: History,
    row: _Round,
    measured: Mapping[str, float],
    stages: Mapping[str, "_Stage"],
    drawn: Mapping[int, Fraction],
) -> RoundFigures:
    rewards = {stage: one.reward for stage, one in stages.items() if one.reward is not None}
    return filled(
        RoundFigures,
        row,
        z=z(row.failures, row.reference_failures),
        epsilon_next=_epsilon_after(history, row, drawn),
        promoted=row.promoted_causes,
        reactivated=row.reactivated_causes,
        invalid=row.invalid_reasons,
        without_box=(row.responses - row.answers) / row.responses if row.responses else None,
        labels_true=row.labels_true / row.labels_judged if row.labels_judged else None,
        failures_judged=row.failures_judged or None,
        against_false_labels=row.against_false_labels if row.failures_judged else None,
        right=row.right_answers,
        mean_at_k=measured.get(MEAN),
        greedy=measured.get("greedy"),
        mean_at_k_best=measured.get("mean_at_k_best"),
        solver_reward=rewards.get("solver"),
        challenger_reward=rewards.get("challenger"),
        seconds={stage: one.seconds for stage, one in stages.items() if one.seconds is not None},
        pass_rate=row.passes / row.rollouts if row.rollouts else None,
    )


def _epsilon_after(history: History, row: _Round, drawn: Mapping[int, Fraction]) -> Fraction:
    """ε of the round after a committed one: from its schedule, or the one that it would get. This is the
    commit's own ε, unless the run was reconfigured or a cause dismissed since."""
    after = _following(history.superseded(), row.round)
    if after is None:
        return row.epsilon_committed
    return drawn[after] if after in drawn else history.state(history.end).epsilon


def _following(gone: Mapping[int, int], round: int) -> int | None:
    """The round that follows among those that count, or among those that were superseded with it; None after
    the last of these, as what follows was drawn from another memory."""
    if round in gone:
        return round + 1 if round + 1 in gone else None
    return next(number for number in count(round + 1) if number not in gone)


@dataclass(frozen=True, slots=True)
class Validation:
    """`v_checkpoint`: a measurement of the solver that the round itself recorded."""

    round: int
    benchmark: str
    questions: int
    conditions: dict[str, Any]
    metrics: dict[str, float]


def measurements(history: History) -> list[Validation]:
    """Measurements of the solver, in order; round 0 is the starting model."""
    return select_rows(history, "v_checkpoint", Validation, "role = 'solver'", order="position")


def validations(history: History, number: int | None = None) -> dict[int, dict[str, float]]:
    """Validation scores by name after each round, or one."""
    found = measurements(history)
    return {
        one.round: one.metrics
        for one in found
        if one.benchmark == "validation" and number in (None, one.round)
    }


def best_round(history: History) -> int | None:
    """The round whose solver to report: the highest validation accuracy, the earlier round on ties. None if
    no round was validated."""
    metric = history.configuration().config.get("validation", {}).get("metric", "greedy")
    scores = {n: one[metric] for n, one in validations(history).items() if n and metric in one}
    return min(scores, key=lambda n: (-scores[n], n), default=None)


@dataclass(frozen=True, slots=True)
class _Stage:
    """`v_stage`."""

    round: int
    stage: str
    reward: float | None
    seconds: float | None


def _stages(history: History, number: int | None) -> Mapping[int, Mapping[str, _Stage]]:
    """By round, the stages that were completed."""
    only = "ended = 'completed'" + ("" if number is None else " AND round = :number")
    found: defaultdict[int, dict[str, _Stage]] = defaultdict(dict)
    for one in select_rows(history, "v_stage", _Stage, only, {"number": number}, order="position"):
        found[one.round][one.stage] = one
    return found


MEASURED = ("reward", "loss", "entropy", "grad_norm", "kl")
"""The metrics of a step, in display order."""


@dataclass(frozen=True, slots=True)
class StepMetric:
    """One step that counts; None means not measured."""

    round: int
    stage: str
    attempt: int
    step: int
    completions: int
    reward: float
    """Mean over the completions."""
    loss: float | None
    entropy: float | None
    grad_norm: float | None
    kl: float | None


def step_metrics(history: History) -> list[StepMetric]:
    """Steps of all phases, in the order in which they ran."""
    return select_rows(history, "v_step_metric", StepMetric, order="round, position")
