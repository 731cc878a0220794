"""`diagevo memory assign, label`: corrections of the diagnosis by a person."""

import getpass
from pathlib import Path
from typing import Annotated, Any

import typer

from diagevo.errors import ConfigError
from diagevo.text.numbers import count, number, percent

from .. import options
from ..call import CommandContext
from ..opening import opened
from ..render import console as render
from ..render.result import Result


@options.command(
    "memory assign",
    example="""diagevo memory assign r3.q318.a5 r3.q318.a7 c2
    diagevo memory assign r3.q318.a5 --new "reads the unit wrong" --note "km, not m"
    diagevo memory assign r3.q318.a5 --undo""",
)
def assign(
    call: CommandContext,
    failures: Annotated[
        list[str], typer.Argument(metavar="FAILURE... [CAUSE]", help="Failures, then the cause.")
    ],
    *,
    new: Annotated[str | None, typer.Option(metavar="TEXT", help="A new cause, in your own words.")] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for their history.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Undo their assignment.")] = False,
) -> Result[Any]:
    """Assign failures to a cause.

    They are counted there as if their own round had matched them. A later diagnosis keeps this, also with
    `--again`; their history says who assigned them. No round may be open."""
    from diagevo.memory.opening import open_memory
    from diagevo.memory.stories.references import resolve

    if undo and (new is not None or note is not None):
        raise ConfigError("--undo takes no new cause", hint="leave out --new and --note")
    named, cause = (failures, None) if undo or new is not None else (failures[:-1], failures[-1])
    if not named:
        raise ConfigError(
            f"{failures[-1]} alone is not enough",
            hint='name failures and then their cause, or give --new "…" or --undo',
        )
    with opened(call) as history:
        run = history.run_id
        cause = None if cause is None else resolve(history, cause, history.end, "cause").id
    by = getpass.getuser()
    with open_memory(call.database, run, create=False) as memory, memory.atomic():
        if undo:
            memory.unassign(named, by)
        else:
            cause = cause or memory.add_cause((new or "").strip(), named[0], by).cause_id
            memory.assign(named, cause, by, note)
        as_of = memory.state
        of = memory.causes_of(named)
        now = {cause_id: memory.cause(cause_id) for cause_id in of.values() if cause_id is not None}
    rows = [{"failure": name, "cause": of[name]} for name in dict.fromkeys(named)]
    lines = [
        f"{cause_id}  {one.state.capitalize()}, f = {one.frequency}: {one.description}"
        for cause_id, one in now.items()
    ]
    without = [name for name, cause_id in of.items() if cause_id is None]
    lines += [f"{count(len(without), 'failure')} without a cause: {', '.join(without)}"] if without else []
    return Result(rows, text="\n".join(lines) + "\n", run=run, as_of=as_of)


@options.command(
    "memory label",
    example="""diagevo memory label --export labels.csv
    diagevo memory label --import labels.csv""",
)
def label(
    call: CommandContext,
    *,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE.csv", help="Write failures to label.")
    ] = None,
    import_: Annotated[
        Path | None, typer.Option("--import", metavar="FILE.csv", help="Read the labels back.")
    ] = None,
    limit: Annotated[str, typer.Option(metavar="N", help="Failures to write: a number, or `all`.")] = "30",
) -> Result[Any]:
    """Label failures in a spreadsheet.

    `label` takes a cause in your own words, or its id; the same words are one cause. `note` says why. A
    row without a label stays as it is. Failures are drawn at random from the unlabelled ones. The import
    reports how far you and the diagnosis agree: share, and Cohen's κ."""
    from diagevo.ingest.labels import export_labels, import_labels
    from diagevo.memory.opening import open_memory

    if (export is None) == (import_ is None):
        raise ConfigError(
            "say what to do with the labels", hint="--export FILE.csv first, then --import FILE.csv"
        )
    if limit != "all" and not (limit.isdecimal() and int(limit) > 0):
        raise ConfigError(f"--limit {limit} is not a number of failures", hint="give one, or `all`")
    with opened(call) as history:
        run = history.run_id
        if export is not None:
            render.refuse_no_folder(export)
            with render.writing(export):
                written = export_labels(history, export, None if limit == "all" else int(limit))
            text = (
                f"{count(written, 'failure')} in {export}: write each one's cause into `label`, then\n"
                f"  diagevo memory label --import {export} --run {run}\n"
            )
            return Result({"file": str(export), "failures": written}, text=text, run=run, as_of=history.end)
    assert import_ is not None
    with open_memory(call.database, run, create=False) as memory:
        done = import_labels(memory, import_, getpass.getuser())
        as_of = memory.state
    agreed, kappa = done.agreement, done.agreement.kappa
    values = {
        "labelled": done.labelled,
        "untouched": done.untouched,
        "assigned": done.assigned,
        "causes": list(done.added),
        "agreed": agreed.agreed,
        "share": None if agreed.share is None else float(agreed.share),
        "kappa": None if kappa is None else float(kappa),
    }
    text = f"{count(done.labelled, 'label')} read, {count(done.untouched, 'row')} without one;"
    text += f" {count(done.assigned, 'failure')} assigned, {count(len(done.added), 'new cause')}\n"
    if done.labelled:
        text += (
            f"you and the diagnosis agree on {agreed.agreed} of {agreed.labelled} ({percent(agreed.share)}),"
            f" κ = {number(kappa, 2)}\n"
        )
    return Result(values, text=text, run=run, as_of=as_of)
