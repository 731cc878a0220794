"""Payloads as they were written stay readable: a frozen example of each version of each event.

A line of `frozen/events.jsonl` that a release wrote is never edited: a new version adds a line, and its
upcaster must make the old ones readable.
"""

import json
from operator import attrgetter
from pathlib import Path

import pytest

from diagevo.errors import StoreError
from diagevo.memory.events import EVENT_TYPES, StageStarted, decode
from diagevo.memory.events.decode import decoded, read
from diagevo.memory.events.records import Pending, payload_of
from tests.contracts.databases import Store

LINES = (Path(__file__).parent / "frozen" / "events.jsonl").read_text(encoding="utf-8").splitlines()
EXAMPLES = [(e["type"], e["version"], e["payload"]) for e in map(json.loads, LINES)]


def test_each_version_of_each_event_has_a_frozen_example() -> None:
    wanted = {(name, v) for name, model in EVENT_TYPES.items() for v in range(1, model.schema_version + 1)}
    assert {(type_, version) for type_, version, _ in EXAMPLES} == wanted


@pytest.mark.parametrize(("type_", "version", "payload"), EXAMPLES, ids=lambda value: str(value)[:24])
def test_a_frozen_event_reads_as_it_was_written(type_: str, version: int, payload: str) -> None:
    event = read(type_, version, payload)
    written = json.loads(payload)
    found = json.loads(payload_of(event))
    assert {name: found[name] for name in written} == written
    if version == EVENT_TYPES[type_].schema_version:
        assert payload_of(event) == payload


def test_an_event_of_a_later_version_is_never_read_as_one_of_today() -> None:
    for type_, _, payload in EXAMPLES:
        later = EVENT_TYPES[type_].schema_version + 1
        with pytest.raises(StoreError, match=f"{type_} of version {later} was written by a newer DiagEvo"):
            read(type_, later, payload)
        with pytest.raises(StoreError, match=f"{type_}Anew of version 1 was written by a newer DiagEvo"):
            read(f"{type_}Anew", 1, payload)


def test_an_old_event_is_upcast_when_it_is_read_and_stays_as_it_was_in_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if StageStarted had once named its stage `name`, and version 2 of it came today."""
    monkeypatch.setitem(decode.CURRENT, "StageStarted", 2)
    step = decode.Upcast(
        lambda old: {"stage": old["name"], "attempt": old["attempt"]},
        lambda new: {"name": new["stage"], "attempt": new["attempt"]},
    )
    monkeypatch.setitem(decode.STEPS, ("StageStarted", 1), step)
    old = '{"attempt":3,"name":"solver"}'
    with store.log() as log:
        log.append("a", 0, [Pending("old", 1, "StageStarted", 1, None, old, None)])
        [record] = log.read("a")
        [fact] = log.facts("a")
        assert record.payload == old
        assert isinstance(record.event, StageStarted)
        assert (record.event.stage, record.event.attempt) == ("solver", 3)
        assert fact.event == record.event


def test_events_before_an_unreadable_one_are_read_old_ones_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(decode.CURRENT, "StageStarted", 2)
    step = decode.Upcast(lambda old: {**old, "attempt": 7}, lambda new: {"stage": new["stage"]})
    monkeypatch.setitem(decode.STEPS, ("StageStarted", 1), step)
    now = '{"artifacts":[],"attempt":3,"seconds":null,"stage":"solver"}'
    rows = [("StageCompleted", now), ("StageStarted", '{"stage":"solver"}'), ("StageCompleted", "{")]
    events = [Pending(f"e{i}", 1, name, 1, None, payload, None) for i, (name, payload) in enumerate(rows)]
    with store.log() as log:
        log.append("a", 0, events[:1])
        log.append("a", 1, events[1:])
        read, attempt = [], attrgetter("attempt")
        with pytest.raises(StoreError, match="StageCompleted cannot be read"):
            read.extend((f.sequence, f.type, attempt(f.event)) for f in log.facts("a"))
        assert read == [(1, "StageCompleted", 3), (2, "StageStarted", 7)]


@pytest.mark.parametrize(
    ("type_", "version", "payload"),
    [
        ("StageStarted", 99, "{}"),
        ("NotYetInvented", 1, "{}"),
        ("StageStarted", 1, "{}"),
        ("StageStarted", 1, "{"),
    ],
)
def test_what_cannot_be_read_is_said_so(type_: str, version: int, payload: str) -> None:
    for reading in (read, decoded):
        with pytest.raises(StoreError, match=type_):
            reading(type_, version, payload)
