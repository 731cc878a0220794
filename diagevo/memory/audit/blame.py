"""Which event made each field of a cause or a node what it is."""

from dataclasses import dataclass

from diagevo.errors import ConfigError
from diagevo.memory.audit.references import Reference
from diagevo.memory.audit.timeline.causes import changes
from diagevo.memory.audit.timeline.nodes import nodes
from diagevo.memory.events import (
    CauseCreated,
    CauseMatched,
    CausePromoted,
    CauseReactivated,
    Event,
    RoundsSuperseded,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.history import AsOf, History


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


class _Fields(dict[str, Blame]):
    """The last event to write each field."""

    def put(self, field: str, value: str | int, by: Fact[Event], note: str = "") -> None:
        self[field] = Blame(
            field, value, type=by.type, round=by.round, position=by.position, event_id=by.event_id, note=note
        )


def _cause(history: History, cause_id: str, as_of: AsOf) -> list[Blame]:
    found = _Fields()
    origin = ""
    for change in changes(history, as_of, cause_id):
        by = change.fact
        match by.event:
            case CauseCreated() as event:
                origin = event.node_id
                found.put("description", event.description, by, f"the diagnosis of {event.failure_id}")
                found.put("node", origin, by)
                found.put("label", "", by)
                found.put("state", change.state, by)
                found.put("frequency", change.frequency, by, event.failure_id)
            case CausePromoted() as event:
                found.put("state", change.state, by, f"mean p1 {event.consistency} ≥ {event.threshold}")
                found.put("frequency", change.frequency, by, f"closed at {event.closed_frequency}")
            case CauseReactivated() as event:
                found.put("state", change.state, by, event.failure_id)
                found.put("frequency", change.frequency, by, event.failure_id)
            case CauseMatched() as event if change.state == "active":
                found.put("frequency", change.frequency, by, f"{event.failure_id} by {event.via}")
            case CauseMatched():
                pass  # its reactivation comes next, and sets both
            case RoundsSuperseded() as event:
                note = f"back to before round {event.first}"
                found.put("state", change.state, by, note)
                found.put("frequency", change.frequency, by, note)
    walked = nodes(history, as_of)
    made = walked.created[origin]
    found.put("label", made.event.label, made)
    for merge in walked.way(origin):
        survivor, absorbed = merge.event.survivor, merge.event.absorbed
        if absorbed == origin:
            found.put("node", survivor, merge, f"{origin} became part of {survivor}")
        found.put("label", merge.event.label, merge, "" if absorbed == origin else f"merged with {absorbed}")
        origin = survivor
    return list(found.values())


def _node(history: History, node_id: str, as_of: AsOf) -> list[Blame]:
    found = _Fields()
    walked = nodes(history, as_of)
    made = walked.created[node_id]
    found.put("label", made.event.label, made)
    for merge in walked.merges:
        if merge.event.survivor == node_id:
            found.put("label", merge.event.label, merge, f"merged with {merge.event.absorbed}")
        if merge.event.absorbed == node_id:
            found.put("merged into", merge.event.survivor, merge)
    for created in history.events(CauseCreated, as_of=as_of):
        cause_id, moves = created.event.cause_id, walked.moves(created.event.node_id)
        if (moves[-1].event.survivor if moves else created.event.node_id) == node_id:
            found.put(f"member {cause_id}", cause_id, moves[-1] if moves else created)
    return list(found.values())
