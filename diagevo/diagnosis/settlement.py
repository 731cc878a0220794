"""Settlement: each diagnosed failure becomes a match of a stored cause or a new cause, one at a time.

Sequential, by (question, sample): a cause that one failure creates is among the candidates of the next.
Prompt 2 is prefetched for the following failures, as many as the diagnostician takes at once; an answer
counts only if the candidates are still the same when the failure's turn comes, so the events are the same as
when asking one by one.
"""

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np

from diagevo.config.models import MemoryConfig
from diagevo.diagnosis.cause_extraction import Cancellable, OnProgress, Progress, ShouldStop
from diagevo.diagnosis.diagnostician import Diagnostician, DuplicateJudgement, KnownCause
from diagevo.diagnosis.embedder import Embedder
from diagevo.equations.states import counted
from diagevo.errors import AGAIN, StoppedSafely
from diagevo.memory.events import (
    DuplicateJudged,
    FailureDiagnosed,
    NodeAssigned,
    SimilarCause,
    SimilarNode,
)
from diagevo.memory.memory import Memory

BATCH, BATCH_SECONDS = 64, 0.5
"""Matches are recorded in batches of this size or after this time: a transaction costs more than an event."""


def settle(
    memory: Memory,
    diagnostician: Diagnostician,
    embedder: Embedder,
    settings: MemoryConfig,
    on_progress: OnProgress | None = None,
    should_stop: ShouldStop | None = None,
) -> "Settlement":
    unsettled = memory.unsettled()
    texts = sorted({event.description for event in unsettled if event.description is not None})
    vectors = dict(zip(texts, memory.vectors(texts, embedder.embed), strict=True)) if texts else {}
    with Settlement(memory, diagnostician, settings, unsettled, vectors) as settlement:
        for turn in range(len(unsettled)):
            if should_stop is not None and should_stop():
                settlement.flush()
                left = len(unsettled) - turn
                raise StoppedSafely(f"settlement stopped, {left} failures to go", hint=AGAIN)
            settlement.settle(turn)
            if on_progress is not None:
                on_progress(Progress("settlement", turn + 1, len(unsettled)))
        settlement.flush()
    return settlement


@dataclass(frozen=True, slots=True)
class _Screening:
    """Stage 2a for one failure, and the pending Prompt 2 if prefetched."""

    causes: int
    """Number of stored causes when it was made: it is valid as long as there are no more."""
    nearest: SimilarCause | None
    shown: tuple[SimilarCause, ...]
    known: tuple[KnownCause, ...]
    capped: int
    answer: Future[DuplicateJudgement] | None


class Settlement:
    """The failures of one round in order. Matches wait in `_pending`: they change no candidate list, so they
    need not be recorded before the next request."""

    def __init__(
        self,
        memory: Memory,
        diagnostician: Diagnostician,
        settings: MemoryConfig,
        unsettled: Sequence[FailureDiagnosed],
        vectors: dict[str, np.ndarray],
    ) -> None:
        self._memory = memory
        self._diagnostician = diagnostician
        self._settings = settings
        self._unsettled = unsettled
        self._vectors = vectors
        self._ahead: dict[int, _Screening] = {}
        self._pool = ThreadPoolExecutor(diagnostician.workers, thread_name_prefix="duplicates")
        self._pending: list[tuple[str, DuplicateJudged | None]] = []
        self._matched: set[str] = set()
        """Causes that a pending match makes Active."""
        self._flushed_at = time.monotonic()
        self.outcomes: Counter[str] = Counter()
        """Failures by outcome: recurrence, duplicate, new_cause."""
        self.new_nodes = 0
        self.assigning = 0.0
        """Seconds that node assignment (stage 3a and Prompt 3) took; the rest went to deduplication."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and isinstance(self._diagnostician, Cancellable):
            self._diagnostician.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def settle(self, turn: int) -> None:
        """Assign the next failure to a cause."""
        event = self._unsettled[turn]
        if event.verdict == "recurrence" or event.description is None:
            self._match(event.failure_id, event.cause_id, None)
            self.outcomes["recurrence"] += 1
            return
        judged = self._judge(turn, event.failure_id, event.description)
        if judged.duplicate:
            self._match(event.failure_id, judged.cause_id, judged)
            self.outcomes["duplicate"] += 1
            return
        self.flush()
        started = time.monotonic()
        assigned = assign(
            self._memory,
            self._diagnostician,
            self._settings,
            event.failure_id,
            event.description,
            self._vectors[event.description],
        )
        self.assigning += time.monotonic() - started
        self._memory.settle(event.failure_id, judged=judged, assigned=assigned)
        self.new_nodes += assigned.node_id is None
        self.outcomes["new_cause"] += 1

    def flush(self) -> None:
        """Record the pending matches, in order, in one transaction."""
        if self._pending:
            with self._memory.atomic():
                for failure_id, judged in self._pending:
                    self._memory.settle(failure_id, judged=judged)
        self._pending.clear()
        self._matched.clear()
        self._flushed_at = time.monotonic()

    def _match(self, failure_id: str, cause_id: str | None, judged: DuplicateJudged | None) -> None:
        self._pending.append((failure_id, judged))
        if cause_id is not None:
            self._matched.add(cause_id)
        if len(self._pending) >= BATCH or time.monotonic() - self._flushed_at > BATCH_SECONDS:
            self.flush()

    def _judge(self, turn: int, failure_id: str, description: str) -> DuplicateJudged:
        """Stage 2a and Prompt 2: asked only if a stored cause is above θ_dup and none has the same
        description."""
        for later in range(turn, min(turn + self._diagnostician.workers, len(self._unsettled))):
            self._screen(later)
        screening = self._ahead.pop(turn)
        known = tuple(self._known(cause) for cause in screening.shown)
        judgement = _of_same_words(description, known)
        if judgement is not None:
            pass
        elif screening.answer is not None and known == screening.known:
            judgement = screening.answer.result()
        elif known:
            judgement = self._diagnostician.judge_duplicate(description, known)
        return DuplicateJudged(
            failure_id=failure_id,
            candidates=list(screening.shown),
            nearest=screening.nearest,
            duplicate=judgement is not None and judgement.duplicate,
            cause_id=judgement.cause_id if judgement else None,
            capped=screening.capped,
            call=judgement.call if judgement else None,
        )

    def _screen(self, turn: int) -> None:
        """Find the candidates of a failure and start asking, unless that is done and still valid."""
        event = self._unsettled[turn]
        if event.verdict != "new_cause" or event.description is None:
            return
        stored = len(self._memory.state.causes)
        before = self._ahead.get(turn)
        if before is not None and before.causes == stored:
            return
        theta = self._settings.theta_dup
        similar = self._memory.similar_causes(self._vectors[event.description], above=theta)
        above = [cause for cause in similar if cause.similarity > theta]
        shown = tuple(above[: self._settings.duplicate_candidates])
        known = tuple(self._known(cause) for cause in shown)
        answer = None
        if before is not None and before.known == known:
            answer = before.answer
        elif known and self._diagnostician.workers > 1 and not _of_same_words(event.description, known):
            answer = self._pool.submit(self._diagnostician.judge_duplicate, event.description, known)
        nearest = similar[0] if similar else None
        self._ahead[turn] = _Screening(stored, nearest, shown, known, len(above) - len(shown), answer)

    def _known(self, candidate: SimilarCause) -> KnownCause:
        """The candidate as shown to a diagnostician, in its state after the pending matches."""
        cause = self._memory.state.causes[candidate.cause_id]
        state = counted(cause.state, cause.frequency, int(cause.cause_id in self._matched))[0]
        return self._memory.state.known_cause(cause, state)


def _of_same_words(description: str, known: Sequence[KnownCause]) -> DuplicateJudgement | None:
    """A cause with the same description is the same one, without asking a judge."""
    same = next((cause for cause in known if description in (cause.found_as, cause.description)), None)
    return None if same is None else DuplicateJudgement(True, same.cause_id)


def assign(
    memory: Memory,
    diagnostician: Diagnostician,
    settings: MemoryConfig,
    failure_id: str,
    description: str,
    vector: np.ndarray,
) -> NodeAssigned:
    """Stage 3a and Prompt 3: the top K nodes by their nearest member (all nodes if there are at most
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
