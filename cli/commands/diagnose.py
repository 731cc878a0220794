"""`diagevo diagnose`: ask the diagnostician for what waits in an ingested run."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError, StoppedSafely
from diagevo.progress import StopFlag
from diagevo.shown import count

from .. import listing, options
from ..opening import config_of, opened
from ..options import Call
from ..render import console as render
from ..render.rows import print_rows
from ..render.table import Column
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.diagnosis.diagnostician import Diagnostician
    from diagevo.diagnosis.extraction import Progress
    from diagevo.ingest.cost import Cost
    from diagevo.memory.events import RoundCommitted
    from diagevo.memory.memory import Memory

ROUNDS = (
    Column("round", align="right"),
    Column("failures", "F", "right"),
    Column("epsilon_next", "ε next", "right"),
    Column("active", "Active", "right"),
    Column("mastered", "Mastered", "right"),
    Column("nodes", align="right"),
    Column("undiagnosed", align="right"),
)


@options.command(
    listing.program,
    "diagnose",
    reads=options.CONFIGURATION,
    rows=True,
    example="""diagevo diagnose --run math --plan
diagevo diagnose --run math --max-calls 5000
diagevo diagnose --run math --set roles.diagnostician.base_url=http://127.0.0.1:8000/v1""",
)
def diagnose(
    call: Call,
    *,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what it would cost.")] = False,
    max_calls: Annotated[
        int | None,
        typer.Option("--max-calls", metavar="N", min=1, help="Stop safely after N calls; again goes on."),
    ] = None,
) -> None:
    """Diagnose the ingested rounds that wait, one after the other, and commit each.

    Says first what it will cost. Interrupted or capped, the same command goes on: what is answered is not
    asked again.
    """
    from diagevo.ingest.cost import cost
    from diagevo.memory.opening import open_memory

    with opened(call) as history:
        run, config = history.run_id, config_of(call, history)
    with open_memory(call.database, run, create=False) as memory:
        found = cost(memory, config)
        if plan:
            print_rows(call, tuple(map(Column, asdict(found))), [asdict(found)], run=run)
            return
        render.say(call, _told(run, found))
        rows = _diagnose(call, memory, config, found, max_calls) if found.rounds else []
        as_of = (memory.state.round, memory.state.position)
    print_rows(call, ROUNDS, rows, run=run, as_of=as_of)
    if rows:
        render.say(call, f"the causes: diagevo memory show --run {run}")


def _told(run: str, found: "Cost") -> str:
    if not found.rounds:
        return f"{run}: nothing waits for a diagnosis"
    text = f"{run}: {count(found.failures, 'failure')} in {count(found.rounds, 'round')}"
    if not found.model:
        return f"{text}, by {found.diagnostician}: no language model is asked"
    return (
        f"{text}, asked of {found.model}: up to about {count(found.calls, 'call')},"
        f" about {found.input_tokens:,} tokens to read for the extractions"
    )


def _diagnose(
    call: Call, memory: "Memory", config: "Config", found: "Cost", max_calls: int | None
) -> list[dict[str, Any]]:
    from diagevo.diagnosis.embedder import embedder_for, identity
    from diagevo.ingest.rounds import Rounds

    if max_calls is not None and not found.model:
        raise ConfigError(f"{found.diagnostician} makes no calls to cap", hint="leave --max-calls out")
    embedder = embedder_for(config.roles.embedder)
    memory.check_embedder(identity(embedder))
    rows: list[dict[str, Any]] = []
    stop = StopFlag()

    def committed(number: int, event: "RoundCommitted") -> None:
        rows.append({"round": number, **event.model_dump(exclude={"type", "state_hash"})})
        render.say(
            call, f"round {number}: F = {event.failures}, {event.active} Active, {count(event.nodes, 'node')}"
        )

    def progress(done: "Progress") -> None:
        if call.verbose:
            render.say(call, f"{done.phase}: {done.done} of {done.total}")

    with stopped_by_signals(stop):
        try:
            Rounds(memory).diagnose(
                _diagnostician(memory, config, max_calls),
                embedder,
                config.diagnosis,
                config.memory,
                progress,
                should_stop=lambda: bool(stop),
                on_commit=committed,
            )
        except StoppedSafely as stopped:
            again = f"diagevo diagnose --run {memory.run_id}"
            raise StoppedSafely(stopped.message, hint=f"go on with: {again}") from stopped
    return rows


def _diagnostician(memory: "Memory", config: "Config", max_calls: int | None) -> "Diagnostician":
    """The configured one; replies are kept, so that nothing is asked twice."""
    role, settings = config.roles.diagnostician, config.diagnosis
    if role.engine != "openai":
        from diagevo.arithmetic.diagnostician import by_rules

        return by_rules(role.engine, config.seed)
    from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
    from diagevo.diagnosis.spending import budget_of, spent

    if max_calls is not None:
        calls = sum(kind.calls for kind in spent(memory.log, memory.run_id).values())
        most = min(calls + max_calls, settings.max_calls or calls + max_calls)
        settings = settings.model_copy(update={"max_calls": most})
    budget = budget_of(memory.log, memory.run_id, settings)
    own = config.prompts is not None and config.prompts != "builtin:arithmetic"
    prompts = Path(str(config.prompts)).expanduser() if own else None
    return OpenAIDiagnostician(role, settings, memory.artifacts, prompts, budget=budget)
