"""Where the events of `memory log` go: lines or JSON lines as they come, or a whole file."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from diagevo.errors import ConfigError

from . import log_text, render
from .options import Call
from .render import Column

if TYPE_CHECKING:
    from diagevo.memory.history import AsOf, History
    from diagevo.memory.records import Recorded
    from diagevo.memory.trail import Trail

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
    """Print the chosen events. Lines and JSON lines stream; other formats are written when all are there."""
    from diagevo.memory.trail import trail

    if follow and call.format not in ("table", "jsonl"):
        raise ConfigError(f"--follow cannot write {call.format}", hint="follow as a table or as jsonl")
    events = trail(history, wanted, as_of)
    if call.format == "json":
        data = [log_text.row(r) for r in events]
        render.document(call, data, "", run=history.run_id, as_of=(as_of.round, as_of.position))
        return
    if call.format not in ("table", "jsonl"):
        render.rows(call, COLUMNS, map(log_text.row, events))
        return
    with _sink(call) as out:
        _stream(call, out, events)
        if follow:
            _stream(call, out, _following(history, wanted, as_of.position, out), flush=True)


@contextmanager
def _sink(call: Call) -> Iterator[IO[str]]:
    """Stdout, or the file of `-o`."""
    if call.output is None:
        yield sys.stdout
        return
    try:
        file = call.output.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write {call.output}: {error.strerror}", hint="name another file with -o"
        ) from error
    with file:
        yield file


def _stream(call: Call, out: IO[str], events: Iterable["Recorded"], *, flush: bool = False) -> None:
    if call.format == "jsonl":
        lines = (json.dumps(log_text.row(r), ensure_ascii=False, allow_nan=False) for r in events)
    else:
        lines = log_text.lines(events)
    for line in lines:
        out.write(line + "\n")
        if flush:
            out.flush()


def _following(history: "History", wanted: "Trail", position: int, out: IO[str]) -> Iterator["Recorded"]:
    """Events as they are written, until the reader goes away or presses Ctrl-C."""
    from dataclasses import replace

    from diagevo.memory.history import AsOf
    from diagevo.memory.trail import trail

    while True:
        out.flush()
        time.sleep(POLL_SECONDS)
        end = history.log.last_position()
        if end > position:
            now = AsOf(0, end, 0)
            yield from trail(history, replace(wanted, last=None), now, after=position)
            position = end
