"""`diagevo memory rename`: an auditor corrects a cause's words."""

from typing import Annotated, Any

import typer

from .. import options
from ..call import Call
from ..opening import Ref, opened
from ..render.result import Result


@options.command("memory rename", example='diagevo memory rename c2 "drops the carry"')
def rename(
    call: Call, ref: Ref, text: Annotated[str, typer.Argument(metavar="TEXT", help="The new words.")]
) -> Result[Any]:
    """Correct a cause's words, everywhere from here on.

    Its id, state and frequency stay. So do the words that new failures are compared with: those in which
    it was found, which stand in `memory why`. No round may be open. Superseding a round brings back the words
    that it began with."""
    from diagevo.memory.audit.references import resolve
    from diagevo.memory.opening import open_memory

    with opened(call) as history:
        cause, run = resolve(history, ref, history.end, "cause").id, history.run_id
    with open_memory(call.database, run, create=False) as memory:
        event = memory.rename(cause, text.strip())
        as_of = memory.state
    values = {"cause": cause, "description": event.description, "before": event.before}
    return Result(
        values, text=f"{cause}  {event.description}\n before: {event.before}\n", run=run, as_of=as_of
    )
