"""`diagevo memory diff, blame`: one memory beside another one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError

from .. import options
from ..call import Call
from ..opening import At, Ref, Round, one, opened, where
from ..render import console as render
from ..render.rows import print_rows

if TYPE_CHECKING:
    from diagevo.memory.audit.history import AsOf, History

_POINTS = "write 2..4, a..b or a@3..b@3"
_EXIT = typer.Option("--exit-code", help="Exit 1 where there is a difference.")


@options.command(
    "memory diff",
    pages=True,
    example="""diagevo memory diff 2..4
    diagevo memory diff a..b
    diagevo memory diff a@3..b@3 --exit-code""",
)
def diff(
    call: Call,
    points: Annotated[
        str,
        typer.Argument(
            metavar="A..B", help="Two rounds of the run, or two runs, each with @ROUND if wanted."
        ),
    ],
    *,
    exit_code: Annotated[bool, _EXIT] = False,
) -> None:
    """What changed between two rounds, or what differs between two runs."""
    from ..screens import compare as compare_text
    from . import runs

    left, dots, right = points.partition("..")
    if not dots or not left or not right:
        raise ConfigError(f"{points} does not name two points", hint=_POINTS)
    if left.isdecimal() != right.isdecimal():
        number, other = (left, right) if left.isdecimal() else (right, left)
        raise ConfigError(f"{points}: {number} is a round, {other} is not", hint=_POINTS)
    if left.isdecimal() and right.isdecimal():
        from diagevo.memory.audit.compare import diff_memory

        with opened(call) as history:
            a, b = (_after(history, int(number)) for number in (left, right))
            found = diff_memory(history, a, b)
        text = compare_text.memory_diff(history.run_id, found)
        data: Any = render.plain(found) | {"same": found.same}
        render.document(call, data, text, run=history.run_id, as_of=where(b))
        if not call.json and found.causes:
            print_rows(call, compare_text.CHANGES, compare_text.change_rows(found))
        same = found.same
    else:
        one(call, left, right)
        same = runs.compare(call, left, right)
    if exit_code and not same:
        raise typer.Exit(1)


def _after(history: "History", number: int) -> "AsOf":
    """After the commit of a round; round 0 is before the first event."""
    from diagevo.memory.audit.history import AsOf

    return AsOf(0, 0, 0) if number == 0 else history.as_of(number)


@options.command(
    "memory blame",
    rows=True,
    pages=True,
    example="""diagevo memory blame c42
    diagevo memory blame n7 --round 3""",
)
def blame(call: Call, ref: Ref, *, round: Round = None, at: At = None) -> None:
    """Which event made each field of a cause or a node what it is."""
    from diagevo.memory.audit.blame import blame as ask
    from diagevo.memory.audit.references import resolve

    from ..screens import compare as compare_text

    with opened(call) as history:
        as_of = history.as_of(round, at)
        found = ask(history, resolve(history, ref, as_of), as_of)
    print_rows(call, compare_text.BLAME, found, run=history.run_id, as_of=where(as_of))
