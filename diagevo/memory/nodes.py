"""The story of a skill node: what made it, what was merged into it, what was kept apart."""

from dataclasses import dataclass

from diagevo.memory.events import CauseCreated, NodeCreated, NodePairJudged, NodesMerged
from diagevo.memory.failures import Asked, FailureStory, asked, story_of
from diagevo.memory.history import AsOf, History, expect


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair of nodes that the diagnostician judged; `merged` says whether they are one now."""

    round: int
    position: int
    other: str
    similarity: float
    merged: bool
    survivor: str | None
    label: str | None
    call: Asked | None


@dataclass(frozen=True, slots=True)
class Member:
    """A cause that came to the node, with the round and the node it was created under."""

    cause_id: str
    description: str
    round: int
    position: int
    created_under: str


@dataclass(frozen=True, slots=True)
class NodeStory:
    node_id: str
    label: str
    created_label: str
    round: int
    position: int
    merged_into: str | None
    evidence: FailureStory
    members: tuple[Member, ...]
    pairs: tuple[Judged, ...]


def why_node(history: History, node_id: str, as_of: AsOf, *, full: bool = False) -> NodeStory:
    """The story of a node that was created by then."""
    created = None
    label, into = "", None
    within = {node_id}
    pairs: list[Judged] = []
    members: list[tuple[str, Member]] = []
    born = None
    kinds = (NodeCreated, CauseCreated, NodePairJudged, NodesMerged)
    for recorded in history.events(*kinds, as_of=as_of):
        match recorded.event:
            case NodeCreated() as event if event.node_id == node_id:
                created, label = recorded, event.label
            case CauseCreated() as event:
                members.append(
                    (
                        event.node_id,
                        Member(
                            event.cause_id,
                            event.description,
                            recorded.round,
                            recorded.position,
                            event.node_id,
                        ),
                    )
                )
                if event.node_id == node_id and born is None:
                    born = recorded
            case NodePairJudged() as event if node_id in event.nodes:
                other = next(n for n in event.nodes if n != node_id)
                survivor = min(event.nodes, key=lambda n: int(n[1:])) if event.merge else None
                call = asked(history, "consolidation (Prompt 4)", event.call) if full and event.call else None
                pairs.append(
                    Judged(
                        recorded.round,
                        recorded.position,
                        other,
                        event.similarity,
                        event.merge,
                        survivor,
                        event.label,
                        call,
                    )
                )
            case NodesMerged() as event:
                if event.survivor in within:
                    within.add(event.absorbed)
                if event.survivor == node_id:
                    label = event.label
                if event.absorbed == node_id:
                    into = event.survivor
    assert created is not None
    assert born is not None
    return NodeStory(
        node_id,
        label,
        expect(created, NodeCreated).label,
        created.round,
        created.position,
        into,
        story_of(history, born, full=full),
        tuple(member for node, member in members if node in within),
        tuple(pairs),
    )
