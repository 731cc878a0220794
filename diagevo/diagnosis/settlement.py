"""Settlement: each diagnosed failure becomes a match of a stored cause or a new cause, one at a time.

Sequential, by (question, sample): a cause that one failure creates is among the candidates of the next.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from diagevo.config.models import MemoryConfig
from diagevo.diagnosis.diagnostician import Diagnostician
from diagevo.diagnosis.embedder import Embedder
from diagevo.diagnosis.extraction import OnProgress, Progress, ShouldStop
from diagevo.errors import StoppedSafely
from diagevo.memory.events import DuplicateJudged, NodeAssigned, SimilarCause, SimilarNode
from diagevo.memory.memory import Memory
from diagevo.memory.state import KnownCause


def settle(
    memory: Memory,
    diagnostician: Diagnostician,
    embedder: Embedder,
    settings: MemoryConfig,
    on_progress: OnProgress | None = None,
    should_stop: ShouldStop | None = None,
) -> tuple[Counter[str], int]:
    """Settle every diagnosed failure. Returns failures by outcome and the number of new nodes."""
    outcomes: Counter[str] = Counter()
    new_nodes = 0
    unsettled = memory.unsettled()
    descriptions = {event.description for event in unsettled if event.verdict == "new_cause"}
    vectors = _vectors(memory, embedder, sorted(text for text in descriptions if text is not None))
    for done, event in enumerate(unsettled, start=1):
        if should_stop is not None and should_stop():
            raise StoppedSafely(
                f"settlement stopped with {len(unsettled) - done + 1} failures to go",
                hint="go on with --resume",
            )
        if event.verdict == "recurrence":
            memory.settle(event.failure_id)
            outcomes["recurrence"] += 1
        elif event.verdict == "new_cause" and (text := event.description) is not None:
            vector = vectors[text]
            judged = judge(memory, diagnostician, settings, event.failure_id, text, vector)
            assigned = None
            if not judged.duplicate:
                assigned = assign(memory, diagnostician, settings, event.failure_id, text, vector)
                new_nodes += assigned.node_id is None
            memory.settle(event.failure_id, judged=judged, assigned=assigned)
            outcomes["duplicate" if judged.duplicate else "new_cause"] += 1
        if on_progress is not None:
            on_progress(Progress("settlement", done, len(unsettled)))
    return outcomes, new_nodes


def judge(
    memory: Memory,
    diagnostician: Diagnostician,
    settings: MemoryConfig,
    failure_id: str,
    description: str,
    vector: np.ndarray,
) -> DuplicateJudged:
    """Stage 2a and Prompt 2: stored causes above θ_dup, best first, capped; asked only where there is one."""
    similar = memory.similar_causes(vector)
    above = [cause for cause in similar if cause.similarity > settings.theta_dup]
    shown = above[: settings.duplicate_candidates]
    judgement = diagnostician.judge_duplicate(description, known(memory, shown)) if shown else None
    return DuplicateJudged(
        failure_id=failure_id,
        candidates=shown,
        nearest=similar[0] if similar else None,
        duplicate=judgement is not None and judgement.duplicate,
        cause_id=judgement.cause_id if judgement else None,
        capped=len(above) - len(shown),
        call=judgement.call if judgement else None,
    )


def assign(
    memory: Memory,
    diagnostician: Diagnostician,
    settings: MemoryConfig,
    failure_id: str,
    description: str,
    vector: np.ndarray,
) -> NodeAssigned:
    """Stage 3a and Prompt 3: the top K nodes by their nearest member (all nodes where there are at most
    K)."""
    shortlist = memory.similar_nodes(vector, settings.shortlist)
    assignment = diagnostician.assign_node(description, shortlist)
    return NodeAssigned(
        failure_id=failure_id,
        shortlist=[SimilarNode(node_id=node.node_id, similarity=node.similarity) for node in shortlist],
        node_id=assignment.node_id,
        new_label=assignment.new_label,
        flags=list(assignment.flags),
        call=assignment.call,
    )


def known(memory: Memory, candidates: Sequence[SimilarCause]) -> list[KnownCause]:
    """The candidates as the diagnostician sees them, in their state as it is now."""
    causes = [memory.cause(candidate.cause_id) for candidate in candidates]
    return [KnownCause(cause.cause_id, cause.state, cause.description) for cause in causes]


def _vectors(memory: Memory, embedder: Embedder, texts: list[str]) -> dict[str, np.ndarray]:
    """One batch for the round: (texts, dimension), cached by text in the memory."""
    return dict(zip(texts, memory.vectors(texts, embedder.embed), strict=True)) if texts else {}
