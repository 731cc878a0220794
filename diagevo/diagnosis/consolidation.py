"""Consolidation at the end of a round (stage 4a and Prompt 4): nodes that name one skill become one.

Pairs above θ_merge are listed once, by falling similarity, then ids. A pair already joined is passed over,
the question is asked about the survivor as it is now, and there is no second pass. All judgements of a round
are recorded in one transaction: the list must come from the nodes as they were before the first merge, and a
run that is killed between two answers lists the same pairs again and finds the replies that it had.
"""

from collections import Counter

from diagevo.config.models import MemoryConfig
from diagevo.diagnosis.diagnostician import Diagnostician, NodeContents
from diagevo.diagnosis.embedder import Embedder
from diagevo.diagnosis.extraction import OnProgress, Progress, ShouldStop
from diagevo.errors import AGAIN, StoppedSafely
from diagevo.memory.events import Node, NodePairJudged, number_of
from diagevo.memory.memory import Memory


def consolidate(
    memory: Memory,
    diagnostician: Diagnostician,
    embedder: Embedder,
    settings: MemoryConfig,
    on_progress: OnProgress | None = None,
    should_stop: ShouldStop | None = None,
) -> Counter[str]:
    """Judge every listed pair and merge what is one skill. Returns pairs by outcome: merged, refused,
    refused_before (same contents, not asked again), joined (one node by now, or this pair asked already)."""
    outcomes: Counter[str] = Counter()
    if _done(memory):
        return outcomes
    pairs = memory.node_pairs(settings.theta_merge, embedder.embed)
    survivor: dict[str, str] = {}
    merged: dict[str, Node] = {}
    """Survivors as they will be once this round's judgements are recorded."""
    judged: dict[tuple[str, str], NodePairJudged] = {}
    for done, (left, right, similarity) in enumerate(pairs, start=1):
        if should_stop is not None and should_stop():
            raise StoppedSafely("consolidation stopped; replies so far are kept", hint=AGAIN)
        a, b = sorted((_root(survivor, left), _root(survivor, right)), key=number_of)
        if a == b or (a, b) in judged:
            outcomes["joined"] += 1
        elif a not in merged and b not in merged and memory.node_pair_refused(a, b):
            outcomes["refused_before"] += 1
        else:
            first = merged.get(a) or memory.node(a)
            second = merged.get(b) or memory.node(b)
            judgement = diagnostician.judge_pair(contents(memory, first), contents(memory, second))
            judged[a, b] = NodePairJudged(
                nodes=(a, b),
                similarity=similarity,
                merge=judgement.merge,
                label=judgement.label,
                flags=list(judgement.flags),
                call=judgement.call,
            )
            if judgement.merge and judgement.label is not None:
                survivor[b] = a
                causes = tuple(sorted(first.causes + second.causes, key=number_of))
                merged[a] = Node(a, judgement.label, causes)
            outcomes["merged" if judgement.merge else "refused"] += 1
        if on_progress is not None:
            on_progress(Progress("consolidation", done, len(pairs)))
    with memory.atomic():
        for event in judged.values():
            memory.judge_nodes(event)
    return outcomes


def _done(memory: Memory) -> bool:
    """Whether the pairs of the open round were judged: they are recorded all at once."""
    now = memory.state.open
    if now is None:
        return False
    recorded = memory.log.read(
        memory.run_id, types=["NodePairJudged"], rounds=(now.number, now.number), limit=1
    )
    return next(recorded, None) is not None


def contents(memory: Memory, node: Node) -> NodeContents:
    """A node as Prompt 4 shows it: all its causes, in the order in which they came."""
    causes = tuple(memory.cause(cause_id).description for cause_id in node.causes)
    return NodeContents(node.node_id, node.label, causes)


def _root(survivor: dict[str, str], node_id: str) -> str:
    while node_id in survivor:
        node_id = survivor[node_id]
    return node_id
