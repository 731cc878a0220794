"""`diagevo memory query`: the memory by SQL."""

import sys
from typing import Annotated, Any

import typer

from diagevo.errors import ConfigError

from .. import options
from ..call import Call
from ..opening import opened
from ..render.result import Result
from ..render.table import Column, columns

LONGEST = 2**20
"""Bytes of a statement on stdin."""


@options.command(
    "memory query",
    rows=True,
    example="""diagevo memory query "SELECT round, failures, active FROM v_round WHERE run_id = :run"
    diagevo memory query - -o questions.csv < questions.sql
    diagevo memory query --views""",
)
def query(
    call: Call,
    sql: Annotated[
        str | None,
        typer.Argument(
            metavar="[SQL]", help="One read-only statement, or - for stdin; :run is the run's name."
        ),
    ] = None,
    *,
    views: Annotated[bool, typer.Option("--views", help="List the stable views and their columns.")] = False,
) -> Result[Any]:
    """Run read-only SQL over the v_… views.

    Writing is refused by the database itself."""
    from diagevo.memory.audit.query import query as ask
    from diagevo.memory.audit.query import view_columns
    from diagevo.memory.read.views import ABOUT

    if (sql is None) != views:
        raise ConfigError("give a statement or --views", hint='diagevo memory query "SELECT * FROM v_round"')
    statement = _statement(sql or "")
    history = call.stack.enter_context(opened(call))
    if views:
        known = view_columns(history.database)
        listed = [{"view": v, "about": ABOUT[v], "columns": list(c)} for v, c in known.items()]
        return Result(listed, columns("view, about, columns"))
    answer = call.stack.enter_context(ask(history.database, statement, run_id=history.run_id))
    names = _unique(answer.columns)
    rows = ({n: _plain(v) for n, v in zip(names, row, strict=True)} for row in answer.rows)
    return Result(rows, [Column(name, name, always=True) for name in names], run=history.run_id)


def _statement(sql: str) -> str:
    """The statement that was typed, or the one on stdin. Raises ConfigError where it is none."""
    if sql != "-":
        return sql
    text = sys.stdin.buffer.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise ConfigError("stdin is too long for a statement", hint=f"at most {LONGEST:,} bytes are read")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("stdin is not UTF-8 text", hint="write the statement in UTF-8") from error


def _unique(names: tuple[str, ...]) -> list[str]:
    """Column names, a repeated one numbered."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return out


def _plain(value: Any) -> Any:
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value
