"""`diagevo memory assign`: what a person knows better than the diagnosis."""

import getpass
from typing import Annotated, Any

import typer

from diagevo.errors import ConfigError
from diagevo.text.numbers import count

from .. import options
from ..call import CommandContext
from ..opening import opened
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
        list[str], typer.Argument(metavar="FAILURE... [CAUSE]", help="Failures, and last the cause.")
    ],
    *,
    new: Annotated[str | None, typer.Option(metavar="TEXT", help="A new cause, in your own words.")] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for their story.")] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take back what was said of them.")] = False,
) -> Result[Any]:
    """Say which cause failures are of.

    They are counted there as if their own round had matched them. A later diagnosis keeps this, `--again`
    too; their story says who said so. No round may be open."""
    from diagevo.memory.opening import open_memory
    from diagevo.memory.stories.references import resolve

    if undo and (new is not None or note is not None):
        raise ConfigError("--undo takes back what was said", hint="leave out --new and --note")
    named, cause = (failures, None) if undo or new is not None else (failures[:-1], failures[-1])
    if not named:
        raise ConfigError(
            f"{failures[-1]} alone says nothing",
            hint='name failures and last their cause, or give --new "…" or --undo',
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
