"""`diagevo memory verify` and `heads`: whether the log is as it was written, and what to keep elsewhere."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import options
from ..call import Call
from ..opening import opened, where
from ..render import console as render
from ..render.rows import print_rows


def _verification() -> Any:
    from diagevo.memory.audit.verify import Verification

    return Verification


@options.command(
    "memory verify",
    data=_verification,
    pages=True,
    example="""diagevo memory verify
    diagevo memory verify --deep --json
    diagevo memory verify --heads kept-elsewhere.jsonl""",
)
def verify(
    call: Call,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Also every stored text against its digest.")] = False,
    heads: Annotated[
        Path | None,
        typer.Option(
            "--heads",
            metavar="FILE",
            help="Also against chain heads that were kept elsewhere.",
        ),
    ] = None,
) -> None:
    """Hash chain, invariants, replay against projections, heads outside the database. Exit 1 at a fault."""
    from diagevo.memory.audit.verify import verify as check
    from diagevo.memory.places import runs_folder

    from ..screens import memory as memory_text

    with opened(call) as history:
        folder = runs_folder(history.database) / history.run_id
        report = check(history.log, history.run_id, folder, deep=deep, copy=heads)
        as_of = None if report.faults else where(history.end)
    data = {"ok": report.ok, **render.plain(report)}
    render.document(
        call, data, memory_text.verification_text(report, not report.ok), run=history.run_id, as_of=as_of
    )
    if not report.ok:
        raise typer.Exit(1)


@options.command(
    "memory heads",
    rows=True,
    pages=True,
    example="""diagevo memory heads
    diagevo memory heads -o kept-elsewhere.jsonl""",
)
def heads(call: Call) -> None:
    """The chain's head after each commit and now, to be kept where no writer of the database can write.

    As JSON lines it is what `memory verify --heads` takes.
    """
    from msgspec import to_builtins

    from diagevo.memory.log.heads import heads_of

    from ..screens import memory as memory_text

    with opened(call) as history:
        values = [to_builtins(head) for head in heads_of(history.log, history.run_id)]
        run, as_of = history.run_id, where(history.end)
    print_rows(call, memory_text.HEADS, values, run=run, as_of=as_of)
