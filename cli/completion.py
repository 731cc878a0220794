"""What a shell is told after a tab: runs, causes, nodes, types of events, figures, tables; else nothing."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from diagevo.memory.history import History

    from .call import Call

Words = list[tuple[str, str]]
"""Each with what it is, which some shells show."""


def runs(ctx: typer.Context, incomplete: str) -> Words:
    """The runs of the database that was named before."""
    found: Words = []
    with suppress(Exception):  # a message here would stand in the middle of what is being typed
        from diagevo.memory.log.database import Database
        from diagevo.memory.log.log import Log

        database = Database(_typed(ctx).database)
        try:
            found = [(run, "") for run in Log(database).runs() if run.startswith(incomplete)]
        finally:
            database.close()
    return found


def points(ctx: typer.Context, incomplete: str) -> Words:
    """The runs of A..B, each in its place."""
    first, dots, second = incomplete.rpartition("..")
    return [(f"{first}{dots}{run}", about) for run, about in runs(ctx, second)]


def references(ctx: typer.Context, incomplete: str) -> Words:
    """Causes and nodes of the run."""
    found: Words = []
    with suppress(Exception), _history(ctx) as history:  # as above
        state = history.state(history.end)
        found = [(c.cause_id, c.description) for c in state.causes.values()]
        found += [(node_id, state.nodes[node_id].label) for node_id in state.nodes]
    return [(name, about) for name, about in found if name.startswith(incomplete)]


def types(incomplete: str) -> list[str]:
    """Types of events."""
    from diagevo.memory.events import EVENT_TYPES

    return [name for name in EVENT_TYPES if name.startswith(incomplete)]


def reported(incomplete: str) -> Words:
    """The figures and tables of a report."""
    from diagevo.report.figures import FIGURES
    from diagevo.report.tables import TITLES

    names = [(entry.name, entry.title) for entry in FIGURES]
    names += [(f"table-{name}", title) for name, title in TITLES.items()]
    return [(name, title) for name, title in names if name.startswith(incomplete)]


@contextmanager
def _history(ctx: typer.Context) -> "Iterator[History]":
    from diagevo.memory.history import open_history

    call = _typed(ctx)
    history = open_history(call.database, call.run)
    try:
        yield history
    finally:
        history.close()


def _typed(ctx: typer.Context) -> "Call":
    """The run and the database that were named so far, before or after the command's name."""
    from .call import Call

    levels: list[Any] = [ctx]  # typer has two names for a context
    while (above := levels[-1].parent) is not None:
        levels.append(above)

    def named(key: str) -> str | None:
        return next((level.params[key] for level in levels if level.params.get(key)), None)

    return Call(run=named("run_"), db=named("db_"))
