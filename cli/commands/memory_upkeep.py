"""`diagevo memory query, verify, rename, rebuild, calibrate`: what an auditor does besides reading."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError
from diagevo.text.numbers import count

from .. import options
from ..call import CommandContext
from ..opening import Ref, config_of, opened
from ..render import console as render
from ..render.result import Result
from ..render.table import Column, columns

if TYPE_CHECKING:
    from diagevo.config.models import EmbedderRole
    from diagevo.memory.memory import Memory
    from diagevo.memory.transfer.rebuilding import Rebuilding

CALIBRATIONS = columns(
    "threshold, model, current: current: 2, proposed: proposed: 2, same: judged same, "
    "same_kept: same above: 2, different: judged different, different_kept: different above: 2, "
    "unrelated_kept: unrelated above: 2"
)
LONGEST = 2**20
"""Maximum bytes of a statement on stdin."""


@options.command(
    "memory query",
    rows=True,
    example="""diagevo memory query "SELECT round, failures, active FROM v_round WHERE run_id = :run"
    diagevo memory query - -o questions.csv < questions.sql
    diagevo memory query --views""",
)
def query(
    call: CommandContext,
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="[SQL]", help="One read-only statement, or - for stdin; :run is the run's name."
        ),
    ] = None,
    *,
    views: Annotated[bool, typer.Option("--views", help="List the stable views and their columns.")] = False,
) -> Result[Any]:
    """Run read-only SQL over the v_… views.

    Writing is refused by the database itself."""
    from diagevo.memory.audit.query import query as ask
    from diagevo.memory.audit.query import view_columns
    from diagevo.memory.read.views import ABOUT

    if (sql is None) != views:
        raise ConfigError("give a statement or --views", hint='diagevo memory query "SELECT * FROM v_round"')
    statement = _statement(sql or "")
    history = call.stack.enter_context(opened(call))
    if views:
        known = view_columns(history.database)
        listed = [{"view": v, "about": ABOUT[v], "columns": list(c)} for v, c in known.items()]
        return Result(listed, columns("view, about, columns"))
    if call.output is not None:
        call.stack.enter_context(render.Heartbeat(call, "reading the rows"))
    answer = call.stack.enter_context(ask(history.database, statement, run_id=history.run_id))
    names = _unique(answer.columns)
    rows = ({n: _plain(v) for n, v in zip(names, row, strict=True)} for row in answer.rows)
    return Result(rows, [Column(name, name, always=True) for name in names], run=history.run_id)


def _statement(sql: str) -> str:
    """The statement on the command line, or on stdin. Raises ConfigError if it is not valid text."""
    if sql != "-":
        return sql
    text = sys.stdin.buffer.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise ConfigError("stdin is too long for a statement", hint=f"at most {LONGEST:,} bytes are read")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("stdin is not UTF-8 text", hint="write the statement in UTF-8") from error


def _unique(names: tuple[str, ...]) -> list[str]:
    """Column names, with repeated ones numbered."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return out


def _plain(value: Any) -> Any:
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value


@options.command(
    "memory verify",
    example="""diagevo memory verify
    diagevo memory verify --deep --json
    diagevo memory verify --heads kept.jsonl""",
)
def verify(
    call: CommandContext,
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also check every stored text against its digest.")
    ] = False,
    heads: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also compare with chain heads kept elsewhere.")
    ] = None,
) -> Result[Any]:
    """Verify a run: hash chain, invariants, projections, heads.

    Exits 1 if it finds a fault."""
    from diagevo.memory.audit.verify import verify as check

    from ..screens import memory as memory_text

    with opened(call) as history, render.Heartbeat(call, "verifying"):
        report = check(history.log, history.run_id, history.folder, deep=deep, copy=heads)
        as_of = None if report.faults else history.end
    data = {"ok": report.ok, **render.plain(report)}
    text = memory_text.verification_text(report, not report.ok)
    return Result(data, text=text, run=history.run_id, as_of=as_of, exit_code=0 if report.ok else 1)


@options.command("memory rename", example='diagevo memory rename c2 "drops the carry"')
def rename(
    call: CommandContext,
    ref: Ref,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The new description.")],
) -> Result[Any]:
    """Correct a cause's description from here on.

    Its id, state and frequency stay. New failures are still compared with the original description, which
    `memory why` shows. No round may be open. Superseding a round restores the earlier description."""
    from diagevo.memory.opening import open_memory
    from diagevo.memory.stories.references import resolve

    with opened(call) as history:
        cause, run = resolve(history, ref, history.end, "cause").id, history.run_id
    with open_memory(call.database, run, create=False) as memory:
        event = memory.rename(cause, text.strip())
        as_of = memory.state
    values = {"cause": cause, "description": event.description, "before": event.before}
    return Result(
        values, text=f"{cause}  {event.description}\n before: {event.before}\n", run=run, as_of=as_of
    )


@options.command(
    "memory dismiss",
    example="""diagevo memory dismiss c2 --because "the grader wants a unit that nobody asked for"
    diagevo memory dismiss c2 --undo""",
)
def dismiss(
    call: CommandContext,
    ref: Ref,
    *,
    because: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why it is no fault of the model.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the dismissal back.")] = False,
) -> Result[Any]:
    """Record that a cause is not the model's fault.

    It leaves F, ε, p, the schedule, exports and first screens; its history says who dismissed it, when and
    why. Later failures are still counted under it and do not bring it back. No round may be open."""
    import getpass

    from diagevo.memory.opening import open_memory
    from diagevo.memory.stories.references import resolve

    if undo == (because is not None):
        hint = '--because "…" dismisses it, --undo takes that back'
        raise ConfigError("say why it is not a fault, or undo the dismissal", hint=hint)
    with opened(call) as history:
        cause, run = resolve(history, ref, history.end, "cause").id, history.run_id
    with open_memory(call.database, run, create=False) as memory:
        if because is None:
            memory.reinstate(cause, getpass.getuser())
        else:
            memory.dismiss(cause, because.strip(), getpass.getuser())
        as_of = memory.state
        now = memory.cause(cause)
    values = {"cause": cause, "state": now.state, "frequency": now.frequency, "because": because}
    text = f"{cause}  {now.state.capitalize()}, f = {now.frequency}: {now.description}\n"
    return Result(values, text=text, run=run, as_of=as_of)


@options.command(
    "memory rebuild",
    reads=options.CONFIGURATION,
    example="""diagevo memory rebuild
    diagevo memory rebuild --embedder
    diagevo memory rebuild --embedder --set 'roles.embedder={engine: openai, model: text-embedding-v4}'""",
)
def rebuild(
    call: CommandContext,
    *,
    embedder: Annotated[
        bool, typer.Option("--embedder", help="Also embed every cause and node with the configured model.")
    ] = False,
) -> Result[Any]:
    """Rebuild projections, snapshots and the vector index.

    The events stay as they are. With --embedder the run switches to the model named by roles.embedder, in its
    own configuration or by --set roles.embedder.… or -c FILE: every cause and node is embedded again, then an
    event records the change. After an interruption, run the same command again to continue.
    """
    from diagevo.memory.opening import open_memory
    from diagevo.memory.transfer.rebuilding import rebuild as make_again

    with opened(call) as history:
        run_id = history.run_id
        role = config_of(call, history).roles.embedder if embedder else None
        stored = history.configuration().config
    with open_memory(call.database, run_id, create=False) as memory:
        if role is not None:
            _embed_anew(call, memory, role, stored)
        with render.Heartbeat(call, "rebuilding the projections"):
            done = make_again(memory)
        as_of = memory.state
    return Result(done, text=_rebuilt_text(run_id, done), run=run_id, as_of=as_of)


def _embed_anew(call: CommandContext, memory: "Memory", role: "EmbedderRole", stored: dict[str, Any]) -> None:
    from diagevo.diagnosis.embedder import embedder_for, identity

    model = embedder_for(role)
    if role.engine == "hashing":  # it may carry the name of the replaced engine
        role = role.model_copy(update={"model": model.name})
    config = {**stored, "roles": {**stored.get("roles", {}), "embedder": role.model_dump(mode="json")}}
    changed = memory.state.embedder != identity(model)
    memory.change_embedder(
        identity(model),
        model.embed,
        config=config,
        on_progress=lambda done, total: render.say(call, f"{done:,} of {total:,} texts embedded"),
    )
    if changed:
        render.say(
            call,
            "θ_dup and θ_merge depend on the embedding model: diagevo memory calibrate proposes new ones",
        )


def _rebuilt_text(run_id: str, done: "Rebuilding") -> str:
    index = count(done.indexed, "cause") if done.indexed else "not needed for so few causes"
    return (
        f"{run_id}: projections and snapshots of {count(done.rounds, 'round')} rewritten\n"
        f"  embeddings    {done.embedder.name} @ {done.embedder.revision or '-'},"
        f" {done.embedder.dimension} numbers\n"
        f"  vector index  {index}\n"
    )


@options.command(
    "memory calibrate",
    reads=options.CONFIGURATION,
    rows=True,
    example="""diagevo memory calibrate
    diagevo memory calibrate --set 'roles.embedder={engine: sentence-transformers, model: all-MiniLM-L6-v2}'
    """,
)
def calibrate(call: CommandContext) -> Result[Any]:
    """Propose θ_dup and θ_merge for an embedding model.

    Uses pairs that the diagnostician has judged: the proposed thresholds keep 95 of 100 pairs judged the
    same. For another model: --set roles.embedder.…, or -c FILE. Writes nothing.
    """
    from diagevo.diagnosis.calibrate import calibrate as propose
    from diagevo.diagnosis.embedder import embedder_for

    with opened(call) as history:
        config = config_of(call, history)
        found = propose(history.log, history.run_id, embedder_for(config.roles.embedder), config.memory)
    notes = [
        f"{line.threshold}: no pair was judged the same, so nothing is proposed"
        if line.proposed is None
        else f"{line.threshold}: {count(line.same, 'pair')} judged the same: too few to rely on"
        for line in found
        if line.proposed is None or not line.enough
    ]
    return Result(found, CALIBRATIONS, run=history.run_id, notes=notes)
