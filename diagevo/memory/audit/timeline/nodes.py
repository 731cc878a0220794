"""Skill nodes as they were made, judged and merged: the one walk over merges."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from diagevo.memory.events import NodeCreated, NodePairJudged, NodesMerged
from diagevo.memory.events.records import Recorded
from diagevo.memory.history import AsOf, History


@dataclass(frozen=True, slots=True)
class Merge:
    """Two nodes became one, after the diagnostician had judged the pair."""

    recorded: Recorded
    survivor: str
    absorbed: str
    label: str
    judged: NodePairJudged | None


Created = tuple[Recorded, NodeCreated]
Judgement = tuple[Recorded, NodePairJudged]


@dataclass(frozen=True, slots=True)
class Nodes:
    """Every node created up to a point, merged and superseded ones included."""

    created: dict[str, Created] = field(default_factory=dict[str, Created])
    merges: list[Merge] = field(default_factory=list[Merge])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    """The last label of each."""
    judged: list[Judgement] = field(default_factory=list[Judgement])
    """Judgements on the node that was asked about."""

    def way(self, node_id: str) -> Iterator[Merge]:
        """The merges of the node that what is under `node_id` belongs to, wherever they lead it."""
        for merge in self.merges:
            if node_id in (merge.survivor, merge.absorbed):
                yield merge
                node_id = merge.survivor

    def moves(self, node_id: str) -> list[Merge]:
        """The merges that took what is under `node_id` elsewhere; the last one's survivor is its home."""
        moves: list[Merge] = []
        for merge in self.way(node_id):
            if merge.absorbed == node_id:
                moves.append(merge)
                node_id = merge.survivor
        return moves


def nodes(history: History, as_of: AsOf, *, about: str | None = None) -> Nodes:
    """One pass over the events of nodes; with `about` also every judgement on that one. What superseded
    rounds merged is two again."""
    found, gone = Nodes(), history.superseded(as_of)
    pending: dict[frozenset[str], NodePairJudged] = {}
    for recorded in history.events(NodeCreated, NodePairJudged, NodesMerged, as_of=as_of):
        match recorded.event:
            case NodeCreated() as event:
                found.created[event.node_id] = recorded, event
                found.labels[event.node_id] = event.label
            case NodePairJudged() as event:
                if event.merge:
                    pending[frozenset(event.nodes)] = event
                if about in event.nodes:
                    found.judged.append((recorded, event))
            case NodesMerged() as event:
                if recorded.round in gone:
                    continue
                judged = pending.pop(frozenset((event.survivor, event.absorbed)), None)
                found.labels[event.survivor] = event.label
                found.merges.append(Merge(recorded, event.survivor, event.absorbed, event.label, judged))
            case _:
                raise AssertionError(recorded.type)  # not asked for
    return found
