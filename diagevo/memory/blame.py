"""Which event made each field of a cause or a node what it is."""

from collections.abc import Iterator
from dataclasses import dataclass

from diagevo.errors import ConfigError
from diagevo.memory.events import (
    CauseCreated,
    CauseMatched,
    CausePromoted,
    CauseReactivated,
    NodeCreated,
    NodesMerged,
)
from diagevo.memory.history import AsOf, History
from diagevo.memory.records import Recorded
from diagevo.memory.references import Reference


@dataclass(frozen=True, slots=True)
class Blame:
    """A field, its value, and the event that gave it that value."""

    field: str
    value: str | int
    type: str
    round: int
    position: int
    event_id: str
    note: str = ""


def blame(history: History, reference: Reference, as_of: AsOf) -> list[Blame]:
    """The fields of a cause or a node, each with the event that made it. Raises ConfigError otherwise."""
    if reference.kind == "cause":
        return _cause(history, reference.id, as_of)
    if reference.kind == "node":
        return _node(history, reference.id, as_of)
    raise ConfigError(
        f"{reference.id} is a {reference.kind}: it is recorded once and never changes",
        hint=f"its event: diagevo memory log {reference.id}",
    )


class _Fields:
    """The last event to write each field."""

    def __init__(self) -> None:
        self.fields: dict[str, Blame] = {}

    def set(self, field: str, value: str | int, by: Recorded, note: str = "") -> None:
        self.fields[field] = Blame(field, value, by.type, by.round, by.position, by.event_id, note)

    def __iter__(self) -> Iterator[Blame]:
        return iter(self.fields.values())


def _cause(history: History, cause_id: str, as_of: AsOf) -> list[Blame]:
    found = _Fields()
    kinds = (CauseCreated, CauseMatched, CausePromoted, CauseReactivated)
    node_id, frequency, mastered = "", 0, False
    for recorded in history.events(*kinds, as_of=as_of, cause_id=cause_id):
        match recorded.event:
            case CauseCreated() as event:
                node_id, frequency = event.node_id, 1
                found.set("description", event.description, recorded, f"the diagnosis of {event.failure_id}")
                found.set("node", node_id, recorded)
                found.set("label", "", recorded)
                found.set("state", "active", recorded)
                found.set("frequency", 1, recorded, event.failure_id)
            case CausePromoted() as event:
                mastered, frequency = True, 0
                found.set("state", "mastered", recorded, f"mean p1 {event.consistency} ≥ {event.threshold}")
                found.set("frequency", 0, recorded, f"closed at {event.closed_frequency}")
            case CauseReactivated() as event:
                mastered, frequency = False, 1
                found.set("state", "active", recorded, event.failure_id)
                found.set("frequency", 1, recorded, event.failure_id)
            case CauseMatched() as event if not mastered:
                frequency += 1
                found.set("frequency", frequency, recorded, f"{event.failure_id} by {event.via}")
    for recorded in history.events(NodeCreated, NodesMerged, as_of=as_of):
        match recorded.event:
            case NodeCreated() as event if event.node_id == node_id:
                found.set("label", event.label, recorded)
            case NodesMerged() as event if event.absorbed == node_id:
                node_id = event.survivor
                found.set("node", node_id, recorded, f"{event.absorbed} became part of {event.survivor}")
                found.set("label", event.label, recorded)
            case NodesMerged() as event if event.survivor == node_id:
                found.set("label", event.label, recorded, f"merged with {event.absorbed}")
    return list(found)


def _node(history: History, node_id: str, as_of: AsOf) -> list[Blame]:
    found = _Fields()
    homes: dict[str, tuple[str, Recorded]] = {}
    """Each cause's node, and the event that put it there."""
    for recorded in history.events(NodeCreated, CauseCreated, NodesMerged, as_of=as_of):
        match recorded.event:
            case NodeCreated() as event if event.node_id == node_id:
                found.set("label", event.label, recorded)
            case CauseCreated() as event:
                homes[event.cause_id] = event.node_id, recorded
            case NodesMerged() as event:
                for cause_id, (home, _) in list(homes.items()):
                    if home == event.absorbed:
                        homes[cause_id] = event.survivor, recorded
                if event.survivor == node_id:
                    found.set("label", event.label, recorded, f"merged with {event.absorbed}")
                if event.absorbed == node_id:
                    found.set("merged into", event.survivor, recorded)
    for cause_id, (home, by) in homes.items():
        if home == node_id:
            found.set(f"member {cause_id}", cause_id, by)
    return list(found)
