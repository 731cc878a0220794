"""Memory maintenance of one round: extract, match or create one failure at a time, merge nodes at the end.

The paper's stages (appendix "Prompt Templates and Memory Routing"): Prompt 1; 2a screening above θ_dup,
Prompt 2; 3a retrieval of the top K nodes, Prompt 3, 3.5 routing; 4a node pairs above θ_merge, Prompt 4.
Models decide, code screens and routes, and the memory derives the consequences. If interrupted anywhere,
calling it again continues: recorded work is not repeated, and answered questions are not asked again.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.cause_extraction import Diagnoser, OnProgress, Progress, ShouldStop
from diagevo.diagnosis.diagnostician import Computed, Diagnostician, NodeContents, UnreadableReplyGuard
from diagevo.diagnosis.embedder import Embedder, identity
from diagevo.diagnosis.settlement import settle
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
    """Judge every listed pair and merge nodes that are one skill. Returns pairs by outcome: merged, refused,
    refused_before (same contents, not asked again), joined (one node by now, or this pair asked already)."""
    outcomes: Counter[str] = Counter()
    if _done(memory):
        return outcomes
    pairs = memory.node_pairs(settings.theta_merge, embedder.embed)
    survivor: dict[str, str] = {}
    merged: dict[str, Node] = {}
    """The survivors once this round's judgements are recorded."""
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
    """Whether the open round's pairs were judged: they are recorded all at once."""
    now = memory.state.open
    if now is None:
        return False
    recorded = memory.log.read(
        memory.run_id, types=["NodePairJudged"], rounds=(now.number, now.number), limit=1
    )
    return next(recorded, None) is not None


def contents(memory: Memory, node: Node) -> NodeContents:
    """A node as Prompt 4 shows it: all its causes, in order of arrival."""
    causes = tuple(memory.cause(cause_id).description for cause_id in node.causes)
    return NodeContents(node.node_id, node.label, causes)


def _root(survivor: dict[str, str], node_id: str) -> str:
    while node_id in survivor:
        node_id = survivor[node_id]
    return node_id


@dataclass(slots=True)
class MaintenanceReport:
    """What one call of `maintain` did. Counts cover only this call; the log has the whole round."""

    verdicts: Counter[str] = field(default_factory=Counter)
    """Extractions by verdict: recurrence, new_cause, slip, unresolved."""
    settled: Counter[str] = field(default_factory=Counter)
    """Failures by outcome: recurrence, duplicate, new_cause."""
    new_nodes: int = 0
    pairs: Counter[str] = field(default_factory=Counter)
    """Node pairs: merged, refused, refused_before (same contents, not asked again), joined (already one)."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time by phase: extraction (the remainder), deduplication, assignment, consolidation."""

    @property
    def failures(self) -> int:
        return sum(self.settled.values())


def maintain(
    memory: Memory,
    diagnostician: Diagnostician,
    embedder: Embedder,
    settings: DiagnosisConfig,
    memory_settings: MemoryConfig,
    on_progress: OnProgress | None = None,
    *,
    should_stop: ShouldStop | None = None,
    ask_again: bool = False,
    legibility: UnreadableReplyGuard | None = None,
    computed: Mapping[str, Computed] | None = None,
) -> MaintenanceReport:
    """Diagnose what is undiagnosed, settle what is unsettled, merge nodes.

    `ask_again` asks the diagnostician again about the round's unresolved failures, ignoring stored replies.
    `computed` has earlier results about ingested failures, by id. Call it when the
    `solver` stage is complete, after draining a `Diagnoser` that ran alongside. Raises ServiceError if a
    service is gone or its replies are unreadable (`legibility`), StoppedSafely if a budget is spent or
    `should_stop` returns True, ConfigError if the run's vectors come from another embedder (a run that named
    none accepts any).
    """
    if memory.names_embedder:
        memory.check_embedder(identity(embedder))
    report = MaintenanceReport()
    clock = time.monotonic()

    def lap(phase: str) -> None:
        nonlocal clock
        now = time.monotonic()
        report.seconds[phase] = now - clock
        clock = now

    with Diagnoser(
        memory, diagnostician, settings, on_progress=on_progress, legibility=legibility, computed=computed
    ) as diagnoser:
        diagnoser.submit(memory.undiagnosed(again=ask_again))
        diagnoser.drain(should_stop)
    report.verdicts = diagnoser.verdicts
    lap("extraction")
    settled = settle(memory, diagnostician, embedder, memory_settings, on_progress, should_stop)
    report.settled, report.new_nodes = settled.outcomes, settled.new_nodes
    lap("deduplication")
    report.seconds["assignment"] = settled.assigning
    report.seconds["deduplication"] -= settled.assigning
    report.pairs = consolidate(memory, diagnostician, embedder, memory_settings, on_progress, should_stop)
    lap("consolidation")
    return report
