"""What a run's diagnosis has cost so far, read from its log."""

from diagevo.config.models import DiagnosisConfig
from diagevo.diagnosis.chat import Budget
from diagevo.memory.events import Call
from diagevo.memory.log.log import Log

DECISIONS = {
    "FailureDiagnosed": "extract",
    "DuplicateJudged": "duplicate",
    "NodeAssigned": "assign",
    "NodePairJudged": "merge",
}
"""The event that records each decision of the diagnostician."""


def spent(log: Log, run_id: str) -> tuple[int, int]:
    """Replies of a model, further tries included, and their tokens. A reply that served several failures
    counts once; one that was asked for ahead and not needed in the end is in no event, and does not count."""
    calls = tokens = 0
    seen: set[str] = set()
    for recorded in log.read(run_id, types=list(DECISIONS)):
        call: Call | None = getattr(recorded.event, "call", None)
        if call is not None and call.request not in seen:
            seen.add(call.request)
            calls += call.tries
            tokens += call.input_tokens + call.output_tokens
    return calls, tokens


def budget_of(log: Log, run_id: str, settings: DiagnosisConfig) -> Budget:
    """The run's budget with what it has spent. Without a limit the log is not read."""
    if settings.max_calls is None and settings.max_tokens is None:
        return Budget(None, None)
    return Budget(settings.max_calls, settings.max_tokens, *spent(log, run_id))
