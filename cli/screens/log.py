"""Where the events of `memory log` go: lines for people, JSON lines, or rows of another format."""

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from diagevo.errors import ConfigError

from ..options import Call
from ..render import rows as row_stream
from ..render.console import Column
from . import log_text

if TYPE_CHECKING:
    from diagevo.memory.audit.history import AsOf, History
    from diagevo.memory.audit.trail import Trail
    from diagevo.memory.events.records import Recorded

POLL_SECONDS = 0.5
COLUMNS = (
    Column("position", "#", "right"),
    Column("round", align="right"),
    Column("type"),
    Column("cause_id", "cause"),
    Column("recorded_at"),
    Column("payload"),
)


def write_events(
    call: Call, history: "History", wanted: "Trail", as_of: "AsOf", *, follow: bool = False
) -> None:
    """Print the chosen events as they are read."""
    from diagevo.memory.audit.trail import trail

    if follow and call.format not in ("table", "jsonl"):
        raise ConfigError(f"--follow cannot write {call.format}", hint="follow as a table or as jsonl")
    events = trail(history, wanted, as_of)
    if call.format not in ("table", "jsonl"):
        where = (as_of.round, as_of.position)
        row_stream.stream(call, COLUMNS, map(log_text.row, events), run=history.run_id, as_of=where)
        return
    with row_stream.sink(call) as out:
        _write(call, out, events)
        if follow:
            _write(call, out, _following(history, wanted, as_of.position, out), flush=True)


def _write(call: Call, out: row_stream.Out, events: Iterable["Recorded"], *, flush: bool = False) -> None:
    if call.format == "jsonl":
        lines = map(row_stream.json_line, map(log_text.row, events))
    else:
        lines = log_text.lines(events)
    for line in lines:
        out.write(line + "\n")
        if flush:
            out.flush()


def _following(
    history: "History", wanted: "Trail", position: int, out: row_stream.Out
) -> Iterator["Recorded"]:
    """Events as they are written, until the reader goes away or presses Ctrl-C."""
    from dataclasses import replace

    from diagevo.memory.audit.history import AsOf
    from diagevo.memory.audit.trail import trail

    while True:
        out.flush()
        time.sleep(POLL_SECONDS)
        end = history.log.last_position()
        if end > position:
            now = AsOf(0, end, 0)
            yield from trail(history, replace(wanted, last=None), now, after=position)
            position = end
