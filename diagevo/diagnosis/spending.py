"""What a run's diagnosis has cost so far, read from its log."""

from collections import defaultdict
from dataclasses import dataclass

from diagevo.config.models import DiagnosisConfig
from diagevo.diagnosis.chat import Budget
from diagevo.memory.events import Call, DuplicateJudged
from diagevo.memory.log.log import Log

DECISIONS = {
    "FailureDiagnosed": "extract",
    "DuplicateJudged": "duplicate",
    "NodeAssigned": "assign",
    "NodePairJudged": "merge",
}
"""The event that records each decision of the diagnostician."""


@dataclass(slots=True)
class Spent:
    """One kind of decision in a run."""

    decisions: int = 0
    """Put to the diagnostician, whoever that is."""
    calls: int = 0
    """Replies of a model, further tries included; a reply that served several failures counts once."""
    input_tokens: int = 0
    output_tokens: int = 0


def spent(log: Log, run_id: str) -> dict[str, Spent]:
    """Decisions, calls and tokens by decision: extract, duplicate, assign, merge.

    Questions that were asked ahead and not needed in the end are in no event and not counted here.
    """
    found: defaultdict[str, Spent] = defaultdict(Spent)
    seen: set[str] = set()
    for recorded in log.read(run_id, types=list(DECISIONS)):
        event = recorded.event
        if isinstance(event, DuplicateJudged) and not event.candidates:
            continue
        kind = found[DECISIONS[recorded.type]]
        kind.decisions += 1
        call: Call | None = getattr(event, "call", None)
        if call is not None and call.request not in seen:
            seen.add(call.request)
            kind.calls += call.tries
            kind.input_tokens += call.input_tokens
            kind.output_tokens += call.output_tokens
    return dict(found)


def budget_of(log: Log, run_id: str, settings: DiagnosisConfig) -> Budget:
    """The run's budget with what it has spent. Without a limit the log is not read."""
    if settings.max_calls is None and settings.max_tokens is None:
        return Budget(None, None)
    kinds = spent(log, run_id).values()
    return Budget(
        settings.max_calls,
        settings.max_tokens,
        spent_calls=sum(kind.calls for kind in kinds),
        spent_tokens=sum(kind.input_tokens + kind.output_tokens for kind in kinds),
    )
