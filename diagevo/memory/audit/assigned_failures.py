"""Whether failures assigned by hand match what their rounds recorded.

The fold forgets a round's failures at its commit; here the assigned ones are looked up in the rounds that
observed them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from diagevo.memory.events import (
    CandidateScored,
    CauseAdded,
    CauseCreated,
    CauseMatched,
    FailureAssigned,
    FailureObserved,
    FailureUnassigned,
    PlacedFailure,
    RoundsSuperseded,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.log.log import Log

SAID = (CauseAdded, FailureAssigned, FailureUnassigned, RoundsSuperseded)
PLAYED = (CandidateScored, FailureObserved, CauseCreated, CauseMatched)


class _Played:
    """The failures of a round, and the cause that each was counted under."""

    def __init__(self, facts: Iterable[Fact[Any]]) -> None:
        self.scored: dict[str, CandidateScored] = {}
        self.failed: set[tuple[str, str]] = set()
        """Ids and responses."""
        self.causes: dict[str, str] = {}
        for event in (fact.event for fact in facts):
            match event:
                case CandidateScored():
                    self.scored[event.question_id] = event
                case FailureObserved():
                    self.failed.add((event.failure_id, event.trajectory))
                case _:
                    self.causes[event.failure_id] = event.cause_id

    def has(self, failure: PlacedFailure) -> bool:
        asked = self.scored.get(failure.failure_id.rpartition(".")[0])
        on = (failure.question, failure.responses, failure.first)
        there = (failure.failure_id, failure.trajectory) in self.failed
        return there and asked is not None and on == (asked.question, asked.responses, asked.first)


def first_misassigned(log: Log, run_id: str) -> tuple[int, str] | None:
    """Position and fault of the first event that does not fit its failure."""
    said = log.chosen(run_id, SAID)
    return misassigned(said, lambda number: log.chosen(run_id, PLAYED, (number, number)))


def misassigned(
    said: Iterable[Fact[Any]], played: Callable[[int], Iterator[Fact[Any]]]
) -> tuple[int, str] | None:
    """As `first_misassigned`, for the events of `SAID`; `played` gives a round's events of `PLAYED`."""
    rounds: dict[int, _Played] = {}
    now: dict[str, str | None] = {}
    journal: list[tuple[int, str, str | None]] = []
    """The round after which each was assigned, and the cause before it: superseding rounds restores that."""

    def of(number: int) -> _Played:
        if number not in rounds:
            rounds[number] = _Played(played(number))
        return rounds[number]

    for fact in said:
        match fact.event:
            case RoundsSuperseded(first=first):
                while journal and journal[-1][0] >= first:
                    _, name, before = journal.pop()
                    now[name] = before
            case CauseAdded(failure_id=name):
                number = name.partition(".")[0].removeprefix("r")
                known = of(int(number)).failed if number.isdecimal() else ()
                if all(name != failure_id for failure_id, _ in known):
                    return fact.position, f"its cause was added for {name}, which is no failure"
            case FailureAssigned() | FailureUnassigned() as event:
                failure, cause_id = event.failure, event.cause_id
                name, own = failure.failure_id, of(failure.round)
                if not own.has(failure):
                    return fact.position, f"round {failure.round} observed no such failure {name}"
                before = now.get(name, own.causes.get(name))
                out = isinstance(event, FailureUnassigned)
                if before != (cause_id if out else None):
                    return fact.position, f"{name} is counted under {before or 'no cause'}"
                if not out and event.undo and own.causes.get(name) != cause_id:
                    return fact.position, f"{name} was not diagnosed as {cause_id}"
                journal.append((fact.round, name, before))
                now[name] = None if out else cause_id
            case _:
                pass
    return None
