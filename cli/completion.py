"""What a shell completes: runs, causes and nodes."""

from contextlib import suppress

import typer

from .call import Call

Words = list[tuple[str, str]]
"""Each with what it is, which some shells show."""


def runs(ctx: typer.Context, incomplete: str) -> Words:
    """The runs of the database that was named before."""
    found: Words = []
    with suppress(Exception):  # a message here would stand in the middle of what is being typed
        from diagevo.memory.log.database import Database
        from diagevo.memory.log.log import Log

        database = Database(Call(db=ctx.params.get("db_")).database)
        try:
            found = [(run, "") for run in Log(database).runs() if run.startswith(incomplete)]
        finally:
            database.close()
    return found


def references(ctx: typer.Context, incomplete: str) -> Words:
    """Causes and nodes of the run."""
    found: Words = []
    with suppress(Exception):  # as above
        from diagevo.memory.history import open_history

        history = open_history(Call(db=ctx.params.get("db_")).database, ctx.params.get("run_"))
        try:
            state = history.state(history.end)
            found = [(c.cause_id, c.description) for c in state.causes.values()]
            found += [(node_id, state.nodes[node_id].label) for node_id in state.nodes]
        finally:
            history.close()
    return [(name, about) for name, about in found if name.startswith(incomplete)]
