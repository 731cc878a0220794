"""Progress of a diagnosis, in lines; and `diagevo diagnose --again --dry-run`: recorded decisions are asked
again and compared."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diagevo.ingest.cost import Cost
from diagevo.ingest.diagnosing import DiagnosisObserver, check_rules, served
from diagevo.memory.events import RoundCommitted, RoundsSuperseded
from diagevo.progress import StopFlag
from diagevo.text.numbers import count, percent

from ..call import CommandContext
from ..opening import config_of, opened
from ..render import console as render
from ..render.result import Result, Rows
from ..render.table import columns
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from diagevo.diagnosis.cause_extraction import Progress
    from diagevo.diagnosis.chat import Usage
    from diagevo.diagnosis.recheck import Recheck

AFTER = {"extraction": "settlement", "settlement": "consolidation", "consolidation": "the commit"}
"""What follows a finished phase of a diagnosis."""
COMPARED = columns("decision, subject, recorded, answered")
"""The columns of a disagreement for a person; json, jsonl, csv and parquet hold every decision that was
asked."""


def compare(call: CommandContext, *, sample: int, round: int | None) -> Result[Any]:
    """Where the answers differ. The language model is actually called, and its replies are not kept."""
    from diagevo.arithmetic.rule_diagnostician import by_rules
    from diagevo.diagnosis.cause_extraction import Cancellable
    from diagevo.diagnosis.recheck import Unrecorded, recheck
    from diagevo.ingest.rounds import Rounds
    from diagevo.memory.log.artifacts import Artifacts
    from diagevo.memory.opening import open_memory

    with opened(call) as history:
        config = config_of(call, history)
        if history.ingested is not None:
            check_rules(config, history.run_id)
        kept = Unrecorded(Artifacts(history.database))
        engine = config.roles.diagnostician.engine
        diagnostician = served(config, kept) if engine == "openai" else by_rules(engine, config.seed)
        try:
            with open_memory(call.database, history.run_id, create=False) as memory:
                computed = Rounds(memory).computed
                found = recheck(history, diagnostician, sample=sample, round=round, computed=computed)
        finally:
            if isinstance(diagnostician, Cancellable):
                diagnostician.cancel()
    differing = [line for line in found if not line.agrees]
    title = f"{history.run_id}, diagnosed again by {diagnostician.name}: {_summary(found)}"
    parts = [title, *([Rows(COMPARED, differing)] if differing else [])]
    return Result(found, COMPARED, parts, run=history.run_id)


def _summary(found: "list[Recheck]") -> str:
    """extract 19 of 20 (95%), duplicate 18 of 20 (90%), …"""
    from diagevo.diagnosis.recheck import agreement

    parts = [
        f"{decision} {agreed} of {total} ({percent(agreed / total)})"
        for decision, (agreed, total) in agreement(found).items()
        if total
    ]
    return f"agrees on {', '.join(parts)}" if parts else "there is no decision to ask about"


class Reporter(render.Heartbeat, DiagnosisObserver):
    """Prints the progress of a diagnosis: with `--verbose` at once, otherwise with the heartbeat. Once it
    has begun, Ctrl-C sets `stop`."""

    def __init__(
        self, call: CommandContext, run: str, stop: StopFlag, *, local: bool, curriculum: bool
    ) -> None:
        super().__init__(call, "comparing the responses" if local else "reading the failures")
        self._run, self._stop = run, stop
        self._after = AFTER | ({"settlement": "the commit"} if local else {})
        self._curriculum = curriculum
        """An evaluation has one round and no curriculum: its result follows."""

    def superseded(self, event: RoundsSuperseded) -> None:
        first = event.first
        which = f"round {first} is" if event.last == first else f"rounds {first} to {event.last} are"
        back = f"F = {event.failures}, {count(len(event.causes), 'cause')}"
        back = f", back to {back}" if self._curriculum else ""
        self.say(f"{self._run}: {which} superseded{back}; asking again")

    def begins(self, found: Cost) -> None:
        self.say(_announced(self._run, found))
        self.enter_context(stopped_by_signals(self._stop))

    def progress(self, done: "Progress") -> None:
        text = f"{done.phase}: {done.done} of {done.total}"
        self.at = text
        if done.done == done.total:
            self.at = f"{done.phase} done, {self._after[done.phase]} under way"
        if self.call.verbose or self.silent:
            self.say(text)

    def committed(self, number: int, event: RoundCommitted) -> None:
        self.at = "reading the next round"
        if self._curriculum:
            figures = f"F = {event.failures}, {event.active} Active, {count(event.nodes, 'node')}"
            self.say(f"round {number}: {figures}")

    def ended(self, usage: "Mapping[str, Usage]") -> None:
        if stored := sum(kind.stored for kind in usage.values()):
            calls = sum(kind.calls for kind in usage.values())
            replies = count(stored, "reply", "replies")
            self.say(f"{replies} came from the store, {calls} from the service")


def _announced(run: str, found: Cost) -> str:
    if not found.rounds:
        return f"{run}: nothing waits for a diagnosis"
    text = f"{run}: {count(found.failures, 'failure')} in {count(found.rounds, 'round')}"
    if found.against_answers:
        text += f" ({found.against_answers:,} where no response passed, against the known answer)"
    if not found.model:
        return f"{text}, by {found.diagnostician}: no language model is asked"
    return (
        f"{text}, asked of {found.model}: up to about {count(found.calls, 'call')},"
        f" about {found.input_tokens:,} tokens to read for the extractions"
    )
