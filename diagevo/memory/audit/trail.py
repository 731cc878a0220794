"""The events that concern one thing: a run, a round, a cause, a node, a question or a failure."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from diagevo.memory.audit.references import Reference, resolve
from diagevo.memory.events import NodePairJudged
from diagevo.memory.events.records import Recorded
from diagevo.memory.history import AsOf, History

_NAMED_IN = {
    "node": ("node_id", "survivor", "absorbed"),
    "question": ("question_id", "failure_id"),
    "failure": ("failure_id",),
}
"""The fields of an event that say what it is about, by the kind of that."""
_NODE_EVENTS = ("NodeCreated", "NodeAssigned", "CauseCreated", "NodePairJudged", "NodesMerged")


@dataclass(frozen=True, slots=True)
class Trail:
    """Which events: each field narrows the choice, None and () leave it open."""

    ref: str | None = None
    types: tuple[str, ...] = ()
    round: int | None = None
    last: int | None = None


def trail(history: History, wanted: Trail, as_of: AsOf, *, after: int = 0) -> Iterator[Recorded]:
    """The chosen events after position `after`, oldest first, streamed."""
    reference = None if wanted.ref is None else resolve(history, wanted.ref, as_of)
    types: tuple[str, ...] | None = wanted.types or None
    rounds = None if wanted.round is None else (wanted.round, wanted.round)
    cause_id = None
    keep: Callable[[Recorded], bool] | None = None
    if reference is not None:
        if reference.kind == "cause":
            cause_id = reference.id
        else:
            keep = _naming(reference)
        if reference.kind == "node":
            types = tuple(t for t in _NODE_EVENTS if types is None or t in types) or ("none",)
        if reference.kind in ("question", "failure"):
            rounds = (reference.round, reference.round)
    newest = wanted.last is not None and keep is None
    found: Iterable[Recorded] = history.log.read(
        history.run_id,
        types=types,
        rounds=rounds,
        cause_id=cause_id,
        after=after,
        until=as_of.position,
        newest_first=newest,
        limit=min(wanted.last, sys.maxsize) if newest and wanted.last else None,
    )
    if keep is not None:
        found = filter(keep, found)
    if wanted.last is None:
        return iter(found)
    kept = deque(found, maxlen=min(wanted.last, sys.maxsize))
    return reversed(kept) if newest else iter(kept)


def _naming(reference: Reference) -> Callable[[Recorded], bool]:
    """Whether an event is about the reference; that of a failure is about its question too. That a node stood
    on a shortlist did nothing to it."""

    def named(recorded: Recorded) -> bool:
        event = recorded.event
        values = [getattr(event, name, None) for name in _NAMED_IN[reference.kind]]
        if reference.kind == "question":
            values += [failure.rpartition(".")[0] for failure in values if isinstance(failure, str)]
        if isinstance(event, NodePairJudged):
            values += event.nodes
        return reference.id in values

    return named
