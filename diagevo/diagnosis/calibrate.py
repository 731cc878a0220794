"""Thresholds for an embedding model, proposed from pairs that the diagnostician has already judged.

θ_dup and θ_merge are cosines, and a cosine belongs to a model: 0.5 is text-embedding-v4's. Screening exists
so that the diagnostician is not asked about everything, and its only risk is leaving out true matches.
So the proposal is the highest threshold, in hundredths, that still lets through 95 of 100 pairs judged the
same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Literal

import numpy as np

from diagevo.config.models import MemoryConfig
from diagevo.diagnosis.embedder import Embedder
from diagevo.memory.events import (
    CauseCreated,
    DuplicateJudged,
    FailureDiagnosed,
    NodeCreated,
    NodePairJudged,
    NodesMerged,
)
from diagevo.memory.log.log import Log

KEPT_PERCENT = 95
ENOUGH = 20
"""Minimum pairs judged the same for a reliable proposal."""
STRANGERS = 2000
"""Maximum pairs of causes from different nodes used as unrelated ones."""

Threshold = Literal["theta_dup", "theta_merge"]
_TYPES = (CauseCreated, NodeCreated, NodesMerged, FailureDiagnosed, DuplicateJudged, NodePairJudged)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts that a diagnostician compared."""

    a: str
    b: str
    same: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the judged pairs say about one threshold. Shares are None if there are no pairs."""

    threshold: Threshold
    model: str
    current: float
    proposed: float | None
    """None if no pair was judged the same."""
    same: int
    different: int
    same_kept: float | None
    """Share of the pairs judged the same that are above the proposal (above the current one without it)."""
    different_kept: float | None
    """Share of the pairs judged different that are above it too: calls that screening does not save."""
    unrelated_kept: float | None
    """Share of pairs from different nodes that are above it."""
    enough: bool
    """Whether there are enough pairs to rely on it."""


def judged_pairs(log: Log, run_id: str) -> Iterator[tuple[Threshold, Pair]]:
    """Every recorded comparison. For a duplicate, only the chosen candidate was judged; if there was none,
    all were judged different."""
    causes: dict[str, str] = {}
    labels: dict[str, str] = {}
    described: dict[str, str] = {}
    types = [kind.__name__ for kind in _TYPES]
    for recorded in log.read(run_id, types=types):
        match event := recorded.event:
            case CauseCreated():
                causes[event.cause_id] = event.description
            case NodeCreated():
                labels[event.node_id] = event.label
            case NodesMerged():
                labels[event.survivor] = event.label
            case FailureDiagnosed() if event.description is not None:
                described[event.failure_id] = event.description
            case DuplicateJudged():
                new = described[event.failure_id]
                for candidate in event.candidates:
                    if not event.duplicate or candidate.cause_id == event.cause_id:
                        yield "theta_dup", Pair(new, causes[candidate.cause_id], event.duplicate)
            case NodePairJudged():
                a, b = event.nodes
                yield "theta_merge", Pair(labels[a], labels[b], event.merge)
            case _:
                pass


def calibrate(log: Log, run_id: str, embedder: Embedder, settings: MemoryConfig) -> list[Calibration]:
    """Propose θ_dup and θ_merge for `embedder` (the run's or another one). Embeds; writes nothing.

    Only pairs above the thresholds in force were ever judged, so with the run's own model a proposal far
    below them cannot come out: lower them for a round to see further.
    """
    pairs: dict[Threshold, dict[Pair, None]] = {"theta_dup": {}, "theta_merge": {}}
    for threshold, pair in judged_pairs(log, run_id):
        pairs[threshold][pair] = None
    unrelated = _unrelated(log, run_id)
    current: dict[Threshold, float] = {"theta_dup": settings.theta_dup, "theta_merge": settings.theta_merge}
    return [
        _calibration(threshold, list(judged), unrelated, embedder, current[threshold])
        for threshold, judged in pairs.items()
    ]


def _calibration(
    threshold: Threshold,
    judged: Sequence[Pair],
    unrelated: Sequence[tuple[str, str]],
    embedder: Embedder,
    current: float,
) -> Calibration:
    same = _cosines([(p.a, p.b) for p in judged if p.same], embedder)
    different = _cosines([(p.a, p.b) for p in judged if not p.same], embedder)
    proposed = proposal(same)
    at = current if proposed is None else proposed
    return Calibration(
        threshold=threshold,
        model=embedder.name,
        current=current,
        proposed=proposed,
        same=len(same),
        different=len(different),
        same_kept=_share(same, at),
        different_kept=_share(different, at),
        unrelated_kept=_share(_cosines(unrelated, embedder), at),
        enough=len(same) >= ENOUGH,
    )


def proposal(same: Sequence[float]) -> float | None:
    """The highest threshold in hundredths below at least 95 of 100 of these cosines."""
    if not same:
        return None
    ordered = sorted(same, reverse=True)
    last = ordered[ceil(len(ordered) * KEPT_PERCENT / 100) - 1]
    hundredths = floor(last * 100)
    # A pair must be above its threshold, not on it.
    return (hundredths if last > hundredths / 100 else hundredths - 1) / 100


def _unrelated(log: Log, run_id: str) -> list[tuple[str, str]]:
    """Pairs of causes from different nodes, evenly sampled."""
    created = [r.event for r in log.read(run_id, types=["CauseCreated"])]
    causes = [event for event in created if isinstance(event, CauseCreated)]
    pairs = [
        (a.description, b.description)
        for index, a in enumerate(causes)
        for b in causes[index + 1 :]
        if a.node_id != b.node_id
    ]
    return pairs[:: max(1, len(pairs) // STRANGERS)]


def _cosines(pairs: Sequence[tuple[str, str]], embedder: Embedder) -> list[float]:
    texts = sorted({text for pair in pairs for text in pair})
    if not texts:
        return []
    rows = dict(zip(texts, embedder.embed(texts), strict=True))
    return [round(float(np.dot(rows[a], rows[b])), 6) for a, b in pairs]


def _share(cosines: Sequence[float], threshold: float) -> float | None:
    return sum(c > threshold for c in cosines) / len(cosines) if cosines else None
