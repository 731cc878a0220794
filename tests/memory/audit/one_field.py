"""A history with one field of one event changed to another value of its type, and what a replay says of it.

The forger is a strong one: the chain is sealed anew, ids are made to fit, projections are written again. What
is left are the fold and the groups of ingested rounds.
"""

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from diagevo.errors import DiagEvoError
from diagevo.memory.audit.assigned_failures import PLAYED, SAID, misassigned
from diagevo.memory.audit.ingested_groups import mismatch
from diagevo.memory.events import EVENT_TYPES, Ratio, Value
from diagevo.memory.events.decode import Fact, decoded
from diagevo.memory.events.records import Recorded, event_id, payload_of
from diagevo.memory.state.fold import advance
from diagevo.memory.state.model import Attempts, MemoryState

Path = tuple[str | int, ...]
"""Where a value stands in a payload."""
Field = tuple[str, str]
"""Type of event and dotted name of the field, without places in lists: ("CandidateScored", "votes")."""
WHOLE = ("config", "conditions", "metrics", "parts", "prompts", "votes", "models", "nodes")
"""Fields whose inside has no names of the catalogue: one field each."""


@dataclass(frozen=True)
class Change:
    """Another value for one field."""

    field: Field
    path: Path
    value: Any


class Told:
    """A history to be told otherwise."""

    def __init__(self, records: list[Recorded]) -> None:
        self.records = records
        self.payloads = [json.loads(record.payload) for record in records]
        self.seen: dict[Field, list[Any]] = {}
        """The values of each field in this history: what a forger would take."""
        for record, payload in zip(records, self.payloads, strict=True):
            for field, _, value, _ in leaves(record.type, payload):
                known = self.seen.setdefault(field, [])
                if value not in known:
                    known.append(value)

    def changes(self, place: int, rng: random.Random) -> Iterator[Change]:
        """Some other values for each field of the event at `place`."""
        record, payload = self.records[place], self.payloads[place]
        for field, path, value, annotation in leaves(record.type, payload):
            seen = self.seen[field]
            others = [*others_of(annotation, value, rng), *rng.sample(seen, min(3, len(seen)))]
            told: list[Any] = []
            for other in others:
                if other != value and other not in told and valid(record, changed(payload, path, other)):
                    told.append(other)
                    yield Change(field, path, other)

    def found(self, state: MemoryState, place: int, change: Change) -> bool:
        """Whether a replay refuses it. `state` is that before the event."""
        told = json.dumps(changed(self.payloads[place], change.path, change.value))
        state = state.copy()
        try:
            for at in range(place, len(self.records)):
                advance(state, self.fact(at, told if at == place else None))
            facts = [self.fact(at, told if at == place else None) for at in range(len(self.records))]

            def of(round: int, *types: str) -> Iterator[Fact[Any]]:
                return (f for f in facts if f.type in types and f.round == round)

            groups = Attempts(f for f in facts if f.type == "GroupIngested")
            found = mismatch(
                state,
                groups,
                lambda batch: of(batch, "GroupIngested"),
                lambda number: of(number, "CandidateScored", "FailureObserved"),
            )
            said = (f for f in facts if f.type in {event.__name__ for event in SAID})
            played = [event.__name__ for event in PLAYED]
            return (found or misassigned(said, lambda number: of(number, *played))) is not None
        except DiagEvoError:
            return True

    @cache  # noqa: B019  (a history lives as long as its test)
    def fact(self, at: int, told: str | None = None) -> Fact[Any]:
        record = self.records[at]
        event = decoded(record.type, record.schema_version, told or record.payload)
        id_ = record.event_id
        if told is not None:
            id_ = event_id(record.round, record.type, event.key())
        return Fact(record.type, record.round, id_, record.sequence, record.position, event)


def leaves(type_: str, payload: Mapping[str, Any]) -> Iterator[tuple[Field, Path, Any, Any]]:
    """Each field of an event: its name, its place, its value and its annotation."""
    for name, kind in _fields(EVENT_TYPES[type_]):
        for names, path, value, annotation in _leaves((name,), (name,), payload[name], kind):
            yield (type_, ".".join(names)), path, value, annotation


def _fields(part: type[Value]) -> list[tuple[str, Any]]:
    hints = get_type_hints(part, include_extras=True)
    return [(name, hints[name]) for name in part.__struct_fields__]


def _leaves(
    names: tuple[str, ...], path: Path, value: Any, annotation: Any
) -> Iterator[tuple[tuple[str, ...], Path, Any, Any]]:
    yield names, path, value, annotation
    if names[-1] in WHOLE:
        return
    part = next((a for a in (annotation, *get_args(annotation)) if _is_part(a)), None)
    if part is None or value is None:
        return
    inside = enumerate(value) if isinstance(value, list) else [(None, value)]
    for place, one in inside:
        at = path if place is None else (*path, place)
        for name, kind in _fields(part):
            yield from _leaves((*names, name), (*at, name), one[name], kind)


def _is_part(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Value)


def others_of(annotation: Any, value: Any, rng: random.Random) -> Iterator[Any]:
    """Values of the type that come to mind."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation == Ratio:
        yield from ("0", "1", "1/7", "5/12")
    elif origin is Annotated:
        yield from others_of(arguments[0], value, rng)
    elif origin in (Union, UnionType):
        if NoneType in arguments:
            yield None
        for argument in arguments:
            if argument is not NoneType:
                yield from others_of(argument, value, rng)
    elif origin is Literal:
        yield from arguments
    elif annotation is bool:
        yield not value
    elif annotation is int:
        yield from (0, 1) if value is None else (value + 1, value - 1, 0)
    elif annotation is float:
        yield from (0.0, 0.5) if value is None else (value + 0.25, value / 2)
    elif annotation is str:
        yield from ("forged", f"{value} forged", "5" * 64)
    elif _is_part(annotation):
        if value is None:
            yield {name: _any(kind) for name, kind in _fields(annotation)}
    elif isinstance(value, list) and value:
        yield from (value[:-1], [*value, value[0]], value[::-1])
        if isinstance(value[0], list) and isinstance(value[0][1], int):  # votes
            yield [[value[0][0], value[0][1] + 1], *value[1:]]
            yield [*value[:-1], ["forged", value[-1][1]]]
        if isinstance(value[0], float):
            yield [value[0] - 1, *value[1:]]
            yield [value[0] + 1, *value[1:]]
        if isinstance(value[0], str):
            yield ["forged", *value[1:]]
    elif isinstance(value, dict) and value:
        name = rng.choice(sorted(value))
        yield {key: inner for key, inner in value.items() if key != name}
        for other in _otherwise(value[name], rng):
            yield {**value, name: other}
    elif isinstance(value, list):
        yield ["forged"]
    elif isinstance(value, dict):
        yield from ({"forged": 1}, {"forged": "forged"}, {"forged": ["forged", "forged"]})


def _any(annotation: Any) -> Any:
    """Some value of a part of an event."""
    kind = getattr(annotation, "__origin__", annotation)  # of a bounded one
    if kind in (int, float):
        return 1
    return "forged" if kind is str else None


def _otherwise(value: Any, rng: random.Random) -> Iterator[Any]:
    """A value in a configuration, or of a measurement."""
    if isinstance(value, dict):
        yield from others_of(dict, value, rng)
    elif isinstance(value, str) and value[:1].isdigit():
        yield from ("1/8", "9/10")
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
    elif isinstance(value, str):
        yield "forged"


def changed(payload: Mapping[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of the payload with another value at that place."""
    copied = json.loads(json.dumps(payload))
    inner = copied
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return copied


def valid(record: Recorded, payload: Mapping[str, Any]) -> bool:
    """Whether it is an event at all: a value of the right type."""
    try:
        payload_of(decoded(record.type, record.schema_version, json.dumps(payload)))
    except DiagEvoError:
        return False
    return True
