"""The diagnostician that a configuration names, for a run; and `diagevo diagnose --again --dry-run`: recorded
decisions asked about again and compared."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.errors import ConfigError
from diagevo.text.numbers import percent

from ..call import CommandContext
from ..opening import config_of, opened
from ..render.result import Result, Rows
from ..render.table import columns

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.diagnosis.diagnostician import Diagnostician
    from diagevo.diagnosis.recheck import Recheck
    from diagevo.ingest.local import LocalCauses
    from diagevo.memory.log.artifacts import Artifacts
    from diagevo.memory.memory import Memory

LOCAL = "local"
COMPARED = columns("decision, subject, recorded, answered")
"""What a person reads of a disagreement; json, jsonl, csv and parquet hold every decision that was asked."""


def check_rules(config: "Config", run: str) -> None:
    """Of an ingested run: raise ConfigError where the rules of a world are to name its causes. It was not
    played there, and to them every foreign failure is a slip."""
    engine = config.roles.diagnostician.engine
    if engine.startswith("rules:"):
        raise ConfigError(
            f"{engine} knows only the mistakes of its own world, and run {run} was not played in it",
            hint=f"name a served model, once: diagevo diagnose --run {run} --model M --base-url URL;"
            " or find causes without a model: --local",
        )


def diagnostician_of(config: "Config", artifacts: "Artifacts", **given: Any) -> "Diagnostician":
    """`artifacts` keep its replies. Further words go to a language model alone."""
    role = config.roles.diagnostician
    if role.engine != "openai":
        from diagevo.arithmetic.rule_diagnostician import by_rules

        return by_rules(role.engine, config.seed)
    from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician

    settings = given.pop("settings", config.diagnosis)
    own = config.prompts is not None and config.prompts != "builtin:arithmetic"
    prompts = Path(str(config.prompts)).expanduser() if own else None
    return OpenAIDiagnostician(role, settings, artifacts, prompts, **given)


def asked_of(
    memory: "Memory", config: "Config", max_calls: int | None = None
) -> "Diagnostician | LocalCauses":
    """The configured one, for the rounds of an ingested run; replies are kept, so that nothing is asked
    twice."""
    engine = config.roles.diagnostician.engine
    if engine == LOCAL:
        from diagevo.ingest.local import LocalCauses
        from diagevo.ingest.rounds import LAST, Rounds

        return LocalCauses(memory, (group for _, group in Rounds(memory).groups(1, LAST)))
    if engine != "openai":
        return diagnostician_of(config, memory.artifacts)
    from diagevo.diagnosis.chat import budget_of, spent

    settings = config.diagnosis
    if max_calls is not None:
        calls, _ = spent(memory.log, memory.run_id)
        most = min(calls + max_calls, settings.max_calls or calls + max_calls)
        settings = settings.model_copy(update={"max_calls": most})
    budget = budget_of(memory.log, memory.run_id, settings)
    return diagnostician_of(config, memory.artifacts, settings=settings, budget=budget)


def compare(call: CommandContext, *, sample: int, round: int | None) -> Result[Any]:
    """Where the answers differ. A language model is really asked, and its replies are not kept."""
    from diagevo.diagnosis.cause_extraction import Cancellable
    from diagevo.diagnosis.recheck import Unrecorded, recheck
    from diagevo.ingest.rounds import Rounds
    from diagevo.memory.log.artifacts import Artifacts
    from diagevo.memory.opening import open_memory

    with opened(call) as history:
        config = config_of(call, history)
        if history.ingested is not None:
            check_rules(config, history.run_id)
        diagnostician = diagnostician_of(config, Unrecorded(Artifacts(history.database)))
        try:
            with open_memory(call.database, history.run_id, create=False) as memory:
                computed = Rounds(memory).computed
                found = recheck(history, diagnostician, sample=sample, round=round, computed=computed)
        finally:
            if isinstance(diagnostician, Cancellable):
                diagnostician.cancel()
    differing = [line for line in found if not line.agrees]
    title = f"{history.run_id}, asked {diagnostician.name} again: {_summary(found)}"
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
