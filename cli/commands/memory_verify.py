"""`diagevo memory verify`: whether the log is as it was written."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import options
from ..call import Call
from ..opening import opened
from ..render import console as render
from ..render.result import Result


@options.command(
    "memory verify",
    example="""diagevo memory verify
    diagevo memory verify --deep --json
    diagevo memory verify --heads kept.jsonl""",
)
def verify(
    call: Call,
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also check every stored text against its digest.")
    ] = False,
    heads: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also compare with chain heads kept elsewhere.")
    ] = None,
) -> Result[Any]:
    """Verify a run: hash chain, invariants, projections, heads.

    Exits 1 at a fault."""
    from diagevo.memory.audit.verify import verify as check
    from diagevo.memory.places import runs_folder

    from ..screens import memory as memory_text

    with opened(call) as history:
        folder = runs_folder(history.database) / history.run_id
        report = check(history.log, history.run_id, folder, deep=deep, copy=heads)
        as_of = None if report.faults else history.end
    data = {"ok": report.ok, **render.plain(report)}
    text = memory_text.verification_text(report, not report.ok)
    return Result(data, text=text, run=history.run_id, as_of=as_of, exit_code=0 if report.ok else 1)
