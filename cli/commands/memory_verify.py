"""`diagevo memory verify`: whether the log is as it was written, and the chain heads to keep elsewhere."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import options
from ..call import Call
from ..opening import opened
from ..render import console as render
from ..render.result import Result

if TYPE_CHECKING:
    from diagevo.memory.log.heads import ChainHead


@options.command(
    "memory verify",
    example="""diagevo memory verify
    diagevo memory verify --deep --json
    diagevo memory verify --heads-out kept.jsonl
    diagevo memory verify --heads kept.jsonl --heads-out kept.jsonl""",
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
    heads_out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="If there is no fault, add the missing chain heads to FILE: one per commit, and "
            "the current one.",
        ),
    ] = None,
) -> Result[Any]:
    """Verify a run: hash chain, invariants, projections, heads.

    Exits 1 at a fault."""
    from diagevo.memory.audit.verify import verify as check
    from diagevo.memory.log.heads import heads_of
    from diagevo.memory.places import runs_folder

    from ..screens import memory as memory_text

    with opened(call) as history:
        folder = runs_folder(history.database) / history.run_id
        report = check(history.log, history.run_id, folder, deep=deep, copy=heads)
        as_of = None if report.faults else history.end
        if heads_out is not None and report.ok:
            _keep(heads_out, heads_of(history.log, history.run_id))
    data = {"ok": report.ok, **render.plain(report)}
    text = memory_text.verification_text(report, not report.ok)
    return Result(data, text=text, run=history.run_id, as_of=as_of, exit_code=0 if report.ok else 1)


def _keep(file: Path, heads: "Iterable[ChainHead]") -> None:
    """Add the lines that the file lacks, as in `chain-heads.jsonl`. Those that are there stay."""
    from msgspec.json import encode

    with render.writing(file):
        kept = file.read_text(encoding="utf-8") if file.is_file() else ""
        there = set(kept.splitlines())
        new = [line for head in heads if (line := encode(head).decode()) not in there]
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as out:
            out.write("\n" if kept and not kept.endswith("\n") else "")
            out.writelines(f"{line}\n" for line in new)
