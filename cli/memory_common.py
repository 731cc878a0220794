"""What the commands of `diagevo memory` share: the group, the options that say where and when, the open
run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .options import Call

if TYPE_CHECKING:
    from diagevo.memory.history import AsOf, History

app = options.group("memory", "Read the log, rebuild the memory, and ask it why.")

Round = Annotated[
    int | None, typer.Option("--round", metavar="N", min=1, help="As of the commit of round N.")
]
At = Annotated[
    int | None,
    typer.Option("--at", metavar="POSITION", min=1, help="As of this position of the log, exactly."),
]
Ref = Annotated[
    str,
    typer.Argument(
        metavar="REF", help="c42, n7, r3.q318, r3.q318.a5, or an unambiguous piece of a description."
    ),
]
OptionalRef = Annotated[
    str | None,
    typer.Argument(
        metavar="[REF]", help="c42, n7, r3.q318, r3.q318.a5, or an unambiguous piece of a description."
    ),
]


@contextmanager
def opened(call: Call) -> Iterator["History"]:
    """The run that the options name, for reading."""
    from diagevo.memory.history import open_history

    history = open_history(call.database, call.run)
    try:
        yield history
    finally:
        history.close()


def where(as_of: "AsOf") -> tuple[int, int]:
    return as_of.round, as_of.position


def theta_dup(history: "History") -> float:
    """The threshold of the run, for the screens."""
    return float(history.configuration().config.get("memory", {}).get("theta_dup", 0.5))
