"""Failures assigned by hand: the cause of each, in place of its diagnosis."""

from collections.abc import Iterable
from typing import NamedTuple, cast

from diagevo.memory.events import (
    CauseAdded,
    CauseCreated,
    CauseMatched,
    CauseRenamed,
    FailureAssigned,
    FailureUnassigned,
    PlacedFailure,
    RoundsSuperseded,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import event_id
from diagevo.memory.log.log import Log
from diagevo.memory.state.model import MemoryState

Move = FailureAssigned | FailureUnassigned


class SampledResponse(NamedTuple):
    """The identity of a failure, whatever round processes its group: the same sample of the same response."""

    question: str
    trajectory: str
    sample: str

    @classmethod
    def of(cls, failure: PlacedFailure) -> "SampledResponse":
        return cls(failure.question, failure.trajectory, failure.failure_id.rpartition(".")[2])


def moves(log: Log, run_id: str, until: int | None = None) -> list[Fact[Move]]:
    """The assignments in force, in order: a superseding undoes those made since its first round was
    opened."""
    found: list[Fact[Move]] = []
    types = [FailureAssigned, FailureUnassigned, RoundsSuperseded]
    for fact in log.chosen(run_id, types, until=until):
        if isinstance(fact.event, RoundsSuperseded):
            first = fact.event.first
            found = [one for one in found if one.round < first]
        else:
            found.append(cast("Fact[Move]", fact))
    return found


def causes_of(moved: Iterable[Fact[Move]]) -> dict[str, str | None]:
    """The cause of each failure after its last move."""
    return {
        one.event.failure.failure_id: one.event.cause_id if isinstance(one.event, FailureAssigned) else None
        for one in moved
    }


def said(log: Log, run_id: str) -> dict[SampledResponse, FailureAssigned]:
    """The last assignment of each rollout that was not undone, whether its round still counts or not."""
    found: dict[SampledResponse, FailureAssigned] = {}
    for fact in log.chosen(run_id, [FailureAssigned, FailureUnassigned]):
        rollout = SampledResponse.of(fact.event.failure)
        if isinstance(fact.event, FailureAssigned) and not fact.event.undo:
            found[rollout] = fact.event
        else:
            found.pop(rollout, None)
    return found


def words_of(log: Log, run_id: str) -> dict[str, str]:
    """The description of every cause, including those removed by a superseding."""
    types = [CauseCreated, CauseAdded, CauseRenamed]
    return {fact.event.cause_id: fact.event.description for fact in log.chosen(run_id, types)}


def diagnosed_as(log: Log, state: MemoryState, failure_id: str, round: int) -> str | None:
    """The cause that a round counted a failure under; None if it counted it under none."""
    matched = event_id(round, CauseMatched.__name__, failure_id)
    made = {
        event_id(round, CauseCreated.__name__, cause.cause_id)
        for cause in state.causes.values()
        if cause.failure_id == failure_id
    }
    for recorded in log.known(state.run_id, [matched, *made]).values():
        assert isinstance(recorded.event, CauseCreated | CauseMatched)
        return recorded.event.cause_id
    return None
