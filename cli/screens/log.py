"""The events of `memory log`: lines for people, JSON lines, or rows of another format."""

import json
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from diagevo.errors import ConfigError
from diagevo.text.redaction import redacted

from ..call import CommandContext
from ..render.console import Out, sink, visible
from ..render.layout import folded, width
from ..render.rows import json_line
from ..render.table import columns

if TYPE_CHECKING:
    from diagevo.memory.events.records import Recorded
    from diagevo.memory.history import AsOf, History
    from diagevo.memory.stories.references import EventFilter

POLL_SECONDS = 0.5
_SUBJECT = 14
_ENVELOPE = (
    *("position", "sequence", "round", "type", "cause_id", "event_id", "causation_id", "recorded_at"),
    *("schema_version", "payload", "hash"),
)
COLUMNS = columns("position: #, round, type, cause_id: cause, recorded_at, payload")


def write_lines(
    call: CommandContext, history: "History", wanted: "EventFilter", as_of: "AsOf", *, follow: bool = False
) -> None:
    """Print the selected events as they are read, one per line; with `follow` also new ones."""
    from diagevo.memory.stories.references import trail

    if call.format not in ("table", "jsonl"):
        raise ConfigError(f"--follow cannot write {call.format}", hint="follow as a table or as jsonl")
    with sink(call) as out:
        _write(call, out, trail(history, wanted, as_of))
        if follow:
            _write(call, out, _following(history, wanted, as_of.position, out), flush=True)


def _write(call: CommandContext, out: Out, events: Iterable["Recorded"], *, flush: bool = False) -> None:
    columns = None if call.output is not None else width()
    printed = map(json_line, map(row, events)) if call.format == "jsonl" else lines(events)
    if columns is not None and call.format != "jsonl":
        printed = (folded(line, columns) for line in printed)
    for line in printed:
        out.write(line + "\n")
        if flush:
            out.flush()


def _following(history: "History", wanted: "EventFilter", position: int, out: Out) -> Iterator["Recorded"]:
    """Events as they are written, until the reader leaves or presses Ctrl-C."""
    from dataclasses import replace

    from diagevo.memory.history import AsOf
    from diagevo.memory.stories.references import trail

    while True:
        out.flush()
        time.sleep(POLL_SECONDS)
        end = history.log.last_position()
        if end > position:
            now = AsOf(0, end, 0)
            yield from trail(history, replace(wanted, last=None), now, after=position)
            position = end


def row(recorded: "Recorded") -> dict[str, Any]:
    """An event with its envelope as plain values."""
    return {name: getattr(recorded, name) for name in _ENVELOPE} | {"payload": _shown(recorded)}


def _shown(recorded: "Recorded") -> Any:
    """The payload; a secret in a configuration, which an old or imported one may have, is removed."""
    payload = json.loads(recorded.payload)
    return redacted(payload) if recorded.type == "RunConfigured" else payload


def lines(events: Iterable["Recorded"]) -> Iterator[str]:
    """Aligned lines: position, round, type, subject, text. They are streamed, so widths are fixed."""
    for recorded in events:
        event, mark = recorded.event, f"#{recorded.position}"
        text = visible(event.sentence(), one_line=True)
        line = f"{mark:>8}  r{recorded.round:<3} {recorded.type:<19} {event.subject():<{_SUBJECT}} {text}"
        yield line.rstrip()
