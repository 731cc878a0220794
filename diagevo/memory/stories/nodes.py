"""The story of a skill node: how it was created, what was merged into it, what was kept apart."""

from dataclasses import dataclass

from diagevo.memory.events import CauseAdded, CauseCreated, NodePairJudged, number_of
from diagevo.memory.events.decode import Fact
from diagevo.memory.history import AsOf, History
from diagevo.memory.stories.failures import FailureStory, ModelExchange, asked, failure_story, stories_of
from diagevo.memory.stories.references import Reference, nodes
from diagevo.memory.stories.references import causes as causes_by


@dataclass(frozen=True, slots=True)
class NodeJudgement:
    """A pair of nodes that the diagnostician judged; `merged` says whether they are one now."""

    round: int
    position: int
    other: str
    similarity: float
    merged: bool
    survivor: str | None
    label: str | None
    call: ModelExchange | None


@dataclass(frozen=True, slots=True)
class Member:
    """A cause of the node, with the round and the node it was created under."""

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
    pairs: tuple[NodeJudgement, ...]


def why_node(history: History, node_id: str, as_of: AsOf, *, full: bool = False) -> NodeStory:
    """The story of a node that was created by then."""
    walked = nodes(history, as_of)
    created = walked.created[node_id]
    merged = (merge.event for merge in walked.merges)
    into = next((event.survivor for event in merged if event.absorbed == node_id), None)
    within = {
        origin
        for origin in walked.created
        if origin == node_id or any(merge.event.survivor == node_id for merge in walked.moves(origin))
    }
    called = causes_by(history, as_of)
    causes = [
        one for one in history.events(CauseCreated, CauseAdded, as_of=as_of) if one.event.node_id in within
    ]
    born = next(one for one in causes if one.event.node_id == node_id)
    if isinstance(born.event, CauseAdded):
        evidence = failure_story(history, Reference("failure", born.event.failure_id), as_of, full=full)
    else:
        [evidence] = stories_of(history, [born], full=full)
    return NodeStory(
        node_id=node_id,
        label=walked.labels[node_id],
        created_label=created.event.label or "",
        round=created.round,
        position=created.position,
        merged_into=into,
        evidence=evidence,
        members=tuple(
            Member(
                one.event.cause_id, called[one.event.cause_id][0], one.round, one.position, one.event.node_id
            )
            for one in causes
        ),
        pairs=tuple(
            _judged(history, node_id, judged, full)
            for judged in walked.judged
            if node_id in judged.event.nodes
        ),
    )


def _judged(history: History, node_id: str, judged: Fact[NodePairJudged], full: bool) -> NodeJudgement:
    event = judged.event
    return NodeJudgement(
        round=judged.round,
        position=judged.position,
        other=next(n for n in event.nodes if n != node_id),
        similarity=event.similarity,
        merged=event.merge,
        survivor=min(event.nodes, key=number_of) if event.merge else None,
        label=event.label,
        call=asked(history, "consolidation (Prompt 4)", event.call) if full and event.call else None,
    )
