"""Memory maintenance of one round: extract, match or create one failure at a time, merge nodes at the end.

The paper's stages (appendix "Prompt Templates and Memory Routing"): Prompt 1; 2a screening above θ_dup,
Prompt 2; 3a retrieval of the top K nodes, Prompt 3, 3.5 routing; 4a node pairs above θ_merge, Prompt 4.
Models decide, code screens and routes, and the memory draws the consequences. Interrupted anywhere, calling
it again goes on: what is recorded is not done again, and what was answered is not asked again.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.consolidation import consolidate
from diagevo.diagnosis.diagnostician import Computed, Diagnostician
from diagevo.diagnosis.embedder import Embedder, identity
from diagevo.diagnosis.extraction import Diagnoser, OnProgress, ShouldStop
from diagevo.diagnosis.legibility import Legibility
from diagevo.diagnosis.settlement import settle
from diagevo.memory.memory import Memory


@dataclass(slots=True)
class MaintenanceReport:
    """What one call of `maintain` did. Counts are of this call alone; the log has the whole round."""

    verdicts: Counter[str] = field(default_factory=Counter)
    """Extractions by verdict: recurrence, new_cause, slip, unresolved."""
    settled: Counter[str] = field(default_factory=Counter)
    """Failures by what became of them: recurrence, duplicate, new_cause."""
    new_nodes: int = 0
    pairs: Counter[str] = field(default_factory=Counter)
    """Node pairs: merged, refused, refused_before (same contents, not asked again), joined (already one)."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time by phase: extraction (what was left of it), deduplication, assignment, consolidation."""

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
    legibility: Legibility | None = None,
    computed: Mapping[str, Computed] | None = None,
) -> MaintenanceReport:
    """Diagnose what is undiagnosed, settle what is unsettled, merge nodes.

    `ask_again` puts the unresolved failures of the round to the diagnostician once more, past stored replies.
    `computed` is what was found out about ingested failures before, by their ids.
    Call it when the `solver` stage is complete, after a `Diagnoser` that ran beside it was drained. Raises
    ServiceError where a service is gone or cannot be read (`legibility`), StoppedSafely where a budget is
    spent or `should_stop` says so, ConfigError where the run's vectors are another embedder's (a run that
    named none takes any).
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
