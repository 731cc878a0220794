"""Skill nodes as they were made, judged and merged: the one walk over merges."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from diagevo.memory.events import NodeCreated, NodePairJudged, NodesMerged
from diagevo.memory.events.decode import Fact
from diagevo.memory.history import AsOf, History


@dataclass(frozen=True, slots=True)
class Nodes:
    """Every node created up to a point, merged and superseded ones included."""

    created: dict[str, Fact[NodeCreated]] = field(default_factory=dict[str, Fact[NodeCreated]])
    merges: list[Fact[NodesMerged]] = field(default_factory=list[Fact[NodesMerged]])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    """The last label of each."""
    judged: list[Fact[NodePairJudged]] = field(default_factory=list[Fact[NodePairJudged]])
    """In order."""

    def way(self, node_id: str) -> Iterator[Fact[NodesMerged]]:
        """The merges of the node that what is under `node_id` belongs to, wherever they lead it."""
        for merge in self.merges:
            if node_id in (merge.event.survivor, merge.event.absorbed):
                yield merge
                node_id = merge.event.survivor

    def moves(self, node_id: str) -> list[Fact[NodesMerged]]:
        """The merges that took what is under `node_id` elsewhere; the last one's survivor is its home."""
        moves: list[Fact[NodesMerged]] = []
        for merge in self.way(node_id):
            if merge.event.absorbed == node_id:
                moves.append(merge)
                node_id = merge.event.survivor
        return moves

    def judgement(self, merge: Fact[NodesMerged]) -> NodePairJudged | None:
        """What the diagnostician said before the two became one."""
        pair = {merge.event.survivor, merge.event.absorbed}
        said = (one.event for one in reversed(self.judged) if one.position < merge.position)
        return next((event for event in said if event.merge and set(event.nodes) == pair), None)


def nodes(history: History, as_of: AsOf) -> Nodes:
    """Read from the events of nodes. What superseded rounds merged is two again."""
    found, gone = Nodes(), history.superseded(as_of)
    for made in history.events(NodeCreated, as_of=as_of):
        found.created[made.event.node_id] = made
        found.labels[made.event.node_id] = made.event.label
    for merge in history.events(NodesMerged, as_of=as_of):
        if merge.round not in gone:
            found.merges.append(merge)
            found.labels[merge.event.survivor] = merge.event.label
    found.judged.extend(history.events(NodePairJudged, as_of=as_of))
    return found
