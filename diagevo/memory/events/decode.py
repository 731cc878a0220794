"""From stored rows to events.

Decoding is strict: anything that is not exactly an event's type is damage. Imported payloads must also be in
canonical form: a duplicate key, an escaped letter or a blank means one thing to this decoder and may mean
another to the database's JSON functions, which the views use.

Old events stay readable: a payload is stored with its version and brought up to date when it is read. A step
converts it to the next version and back: back, to check that it is what its own version would have written.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from diagevo.errors import DamagedError, StoreError
from diagevo.memory.events.catalogue import EVENT_TYPES, Event
from diagevo.memory.events.named_texts import refuse_no_digest

Payload = dict[str, Any]


class Upcast(NamedTuple):
    """From one version of a payload to the next, and back."""

    up: Callable[[Payload], Payload]
    down: Callable[[Payload], Payload]


def _with(**fields: Any) -> Upcast:
    """A step that adds fields unknown to the old version; a function computes one from the others."""

    def up(payload: Payload) -> Payload:
        new = {name: made(payload) if callable(made) else made for name, made in fields.items()}
        return {**payload, **new}

    def down(payload: Payload) -> Payload:
        return {name: value for name, value in payload.items() if name not in fields}

    return Upcast(up, down)


def _reference_alone(payload: Payload) -> list[Any]:
    return [] if payload["reference"] is None else [payload["reference"]]


STEPS: dict[tuple[str, int], Upcast] = {
    ("FailureObserved", 1): _with(right=None),
    ("FailureObserved", 2): _with(against="response"),
    ("StageCompleted", 1): _with(),  # its reward stays as it was: the mean over the last attempt's steps
    ("FailureObserved", 3): _with(),
    ("FailureObserved", 4): _with(feedback=None),
    ("FailureDiagnosed", 1): _with(cause_key=None, level=None, evidence=[], step=None),
    ("FailureDiagnosed", 2): _with(pair=None),
    ("CheckpointEvaluated", 1): _with(seconds=None),
    ("CandidateScored", 1): _with(label_from="votes", given=[]),
    ("CandidateScored", 2): _with(task=None, part=""),
    ("StepTrained", 1): _with(measured=[]),
    ("GroupIngested", 1): _with(passed=_reference_alone, feedback=[], tags=[]),
}
"""(type, version) -> the step to version + 1. Add one, and a frozen example of the old version, with each
change of a payload."""

CURRENT: dict[str, int] = {name: model.schema_version for name, model in EVENT_TYPES.items()}


def upcast(type_: str, version: int, payload: Payload) -> Payload:
    """The payload in its current version. Raises StoreError for an unknown type or version."""
    current = CURRENT.get(type_)
    if current is None or version > current:
        raise StoreError(
            f"an event {type_} of version {version} was written by a newer DiagEvo",
            hint="install the newer version of DiagEvo",
        )
    if version < 1:
        raise StoreError(f"an event {type_} says it is of version {version}: versions begin at 1")
    for step in range(version, current):
        payload = STEPS[type_, step].up(payload)
    return payload


def downcast(type_: str, version: int, payload: Payload) -> Payload:
    """A current payload as an older version would have written it."""
    for step in reversed(range(version, CURRENT[type_])):
        payload = STEPS[type_, step].down(payload)
    return payload


E = TypeVar("E", bound=Event, covariant=True)


class Fact(msgspec.Struct, Generic[E], frozen=True, gc=False):
    """One event about to be folded."""

    type: str
    round: int
    event_id: str
    sequence: int
    position: int
    event: E


UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError)
"""The errors of a payload that is not JSON, not of the event's type, not text, nested too deep, or has too
large a number."""
FACT = ("type", "round", "event_id", "sequence", "position", "schema_version", "payload")
FactRow = tuple[str, int, str, int, int, int, str]
"""The types of the columns of `FACT`."""
DECODERS: dict[str, Callable[[str], Event]] = {
    name: msgspec.json.Decoder(event).decode for name, event in EVENT_TYPES.items()
}
ENCODER = msgspec.json.Encoder(order="sorted")
"""The one encoding of an event: without the tag, keys sorted, no spaces, every field."""


def _decoded(type_: str, version: int, payload: str) -> Event:
    if version == CURRENT.get(type_):
        return DECODERS[type_](payload)
    return msgspec.convert(upcast(type_, version, msgspec.json.decode(payload)), EVENT_TYPES[type_])


def decoded(type_: str, version: int, payload: str) -> Event:
    """The event of a payload that this run's writer wrote, upcast if it is old. Raises DamagedError if it
    does not fit, StoreError if a newer version wrote it."""
    try:
        return _decoded(type_, version, payload)
    except UNREADABLE as error:
        raise _unreadable(type_, error) from error


def read(type_: str, version: int, payload: str) -> Event:
    """The event of a payload that is in canonical form, digests included. Raises as
    `decoded` does."""
    event = decoded(type_, version, payload)
    try:
        refuse_no_digest(event)
        _refuse_respelled(event, type_, version, payload)
    except ValueError as error:
        raise _unreadable(type_, error) from error
    return event


def _refuse_respelled(event: Event, type_: str, version: int, payload: str) -> None:
    if version == CURRENT[type_]:
        written = ENCODER.encode(event)
    else:
        written = ENCODER.encode(downcast(type_, version, msgspec.to_builtins(event)))
    given = payload.encode()
    if written != given:
        at = next((i for i, (a, b) in enumerate(zip(written, given, strict=False)) if a != b), len(written))
        near = slice(max(0, at - 12), at + 12)
        here, there = (one[near].decode(errors="replace") for one in (given, written))
        raise ValueError(f"it is not as it would be written: …{here}… where …{there}… belongs")


def facts(rows: Iterable[FactRow]) -> Iterator[Fact[Event]]:
    """Rows of the log for the fold: `decoded` for each, without a call per row, because a replay has a
    million of them. Raises DamagedError at a payload that does not fit."""
    current, decoders, type_, position = CURRENT.get, DECODERS, "", None
    try:
        for type_, round_, event_id, sequence, position, version, payload in rows:
            known = version == current(type_)
            event = decoders[type_](payload) if known else _decoded(type_, version, payload)
            yield Fact(type_, round_, event_id, sequence, position, event)
    except UNREADABLE as error:
        raise _unreadable(type_, error, position) from error


def _unreadable(type_: str, error: Exception, position: int | None = None) -> DamagedError:
    which = "an event" if position is None else f"#{position}"
    return DamagedError(f"the payload of {which} {type_} cannot be read: {error}", position=position)
