"""`diagevo mcp`: read-only tools for an agent that audits a run."""

from typing import TYPE_CHECKING

from diagevo.errors import ConfigError

from .. import options
from ..call import CommandContext
from ..opening import opened
from ..render import console as render

if TYPE_CHECKING:
    from diagevo.memory.history import History


@options.command("mcp", example="diagevo mcp --run math")
def mcp(call: CommandContext) -> None:
    """Serve read-only tools for agents on stdin and stdout.

    The tools: why, replay, schedule, what_if, diff, verify, query."""
    from .mcp_tools import serve, server

    if call.json:
        raise ConfigError("the tools already speak JSON, in their own protocol", hint="leave --json out")
    with opened(call) as history:  # damage in the run is reported here, not to the agent
        reasons = may_not_query(history)
    if reasons:
        render.say(call, f"the tool query is not offered: this role {'; '.join(reasons[:3])}")
        render.say(call, "hint: connect as a role that may only read: docs/howto/postgresql.md")
    serve(server(call, queries=not reasons))


def may_not_query(history: "History") -> list[str]:
    """The reasons why an agent may not run SQL over this connection."""
    if history.database.dialect == "sqlite":
        return []
    from diagevo.memory.audit.query_postgres import not_a_reader

    return not_a_reader(history.database)
