"""The committed rounds of a run, in figures."""

from collections import defaultdict
from collections.abc import Iterator

from sqlalchemy import select

from diagevo.equations.schedule import z
from diagevo.memory.audit.timeline.measurements import Measured, measured
from diagevo.memory.audit.timeline.rounds import epsilon_after
from diagevo.memory.events import CausePromoted, CauseReactivated
from diagevo.memory.history import History
from diagevo.memory.state.projection import ROUND
from diagevo.progress import RoundFigures


def round_figures(
    history: History, round: int | None = None, *, counted: bool = True, superseded: bool = False
) -> Iterator[RoundFigures]:
    """The committed rounds that count, or one round, from the projection that each commit wrote; with
    `superseded` those too that count no more. Not `counted`, they lack what takes reading every candidate and
    failure."""
    again = history.superseded()
    query = select(ROUND).where(ROUND.c.run_id == history.run_id).order_by(ROUND.c.round)
    if round is not None:
        query = query.where(ROUND.c.round == round)
    with history.database.read() as connection:
        rows = connection.execute(query).all()
    of_round = measured(history, round, candidates=counted)
    promoted, reactivated = _moved(history, round)
    for r in rows:
        if r.round in again and round is None and not superseded:
            continue
        found = of_round.get(r.round, Measured())
        yield RoundFigures(
            round=r.round,
            position=r.position,
            failures=r.failures,
            z=z(r.failures, r.reference_failures),
            epsilon_next=epsilon_after(history, r.round, r.failures, r.reference_failures),
            active=r.active,
            mastered=r.mastered,
            nodes=r.nodes,
            candidates=r.candidates,
            kept=r.kept,
            observed=r.observed,
            created=r.created,
            promoted=tuple(promoted[r.round]),
            reactivated=tuple(reactivated[r.round]),
            committed_at=r.committed_at,
            verdicts=dict(found.verdicts),
            invalid=dict(found.invalid),
            without_box=found.without_box,
            undecided=found.undecided,
            labels_true=found.labels_true,
            failures_judged=found.failures or None,
            against_false_labels=found.against_false_labels if found.failures else None,
            right=found.right if found.failures else None,
            mean_at_k=found.validation.get("mean_at_k"),
            greedy=found.validation.get("greedy"),
            solver_reward=found.rewards.get("solver"),
            challenger_reward=found.rewards.get("challenger"),
            seconds=found.seconds,
            rollouts=found.rollouts,
            passes=found.passes,
            pass_rate=found.pass_rate,
            superseded_by=again.get(r.round),
        )


def _moved(history: History, round: int | None) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    """The causes promoted and those reactivated, by round, in order."""
    promoted: dict[int, list[str]] = defaultdict(list)
    reactivated: dict[int, list[str]] = defaultdict(list)
    for found in history.events(CausePromoted, CauseReactivated, round=round):
        of_round = promoted if isinstance(found.event, CausePromoted) else reactivated
        of_round[found.round].append(found.event.cause_id)
    return promoted, reactivated
