"""From stored rows to events: pydantic models for readers, light msgspec structs for the fold.

The structs are derived from the catalogue (`catalogue.py`): the same names and types, only the fields that the
fold reads, decoded an order of magnitude faster than a model is validated.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Generic, TypeVar, cast, get_args, get_origin

import msgspec
from pydantic import BaseModel, ValidationError

from diagevo.errors import DamagedError
from diagevo.exact import RECORDED
from diagevo.memory.events import EVENT_TYPES, Event
from diagevo.memory.events.upcast import CURRENT, upcast

UNREAD = {
    "CandidateScored": {"question"},
    "GroupIngested": {"question", "answer", "source", "draw", "attempt"},
    "DuplicateJudged": {"nearest", "call", "capped"},
    "FailureDiagnosed": {"call", "flags"},
    "NodeAssigned": {"shortlist", "call", "flags"},
    "NodePairJudged": {"call", "flags"},
    "FailureObserved": {"right"},
    "RunConfigured": {"version", "prompts"},
    "StageAbandoned": {"seconds", "reason"},
    "StageCompleted": {"parts", "reward"},
    "PhaseMeasured": {
        "steps",
        "first_kl",
        "sampling_gap",
        "reward_lowest",
        "reward_highest",
        "completions",
        "cut_off",
        "attention",
        "findings",
    },
    "RoundsSuperseded": {"reason"},
    "CheckpointEvaluated": {"conditions", "metrics", "questions", "checkpoint"},
}
"""Fields that the fold never looks at: what `memory.state` does not know, an audit reads from the log."""


RATIO = Annotated[str, msgspec.Meta(pattern=RECORDED)]


E = TypeVar("E", bound=Event, covariant=True)


class Fact(msgspec.Struct, Generic[E], frozen=True, gc=False):
    """One event on its way into the fold. `event` is a model or its light struct: equal attributes, so that
    both are typed as the model (the struct lacks what is UNREAD)."""

    type: str
    round: int
    event_id: str
    sequence: int
    position: int
    event: E


def _plain(annotation: Any) -> Any:
    """The annotation with pydantic models replaced by structs."""
    part: object = annotation
    if isinstance(part, type) and issubclass(part, BaseModel):
        return _struct(part.__name__, part, frozenset())
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is Annotated:
        return _plain(arguments[0])
    if not arguments or origin is None or origin.__name__ == "Literal":
        return annotation
    inner = tuple(_plain(a) for a in arguments)
    if origin in (list, dict, tuple):
        return cast("Any", origin)[inner]
    union = inner[0]
    for other in inner[1:]:
        union = union | other
    return union


def _struct(name: str, model: type[BaseModel], without: frozenset[str]) -> type[msgspec.Struct]:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for field, info in model.model_fields.items():
        if field in without:
            continue
        if info.is_required():
            ratio = any(getattr(rule, "pattern", None) == RECORDED for rule in info.metadata)
            fields.append((field, RATIO if ratio else _plain(info.annotation)))
        else:
            default = info.get_default(call_default_factory=True)
            empty = default == []
            given: Any = msgspec.field(default_factory=list[Any]) if empty else msgspec.field(default=default)
            fields.append((field, _plain(info.annotation), given))
    fields.sort(key=lambda f: len(f) == 3)
    # They hold values only and cannot be part of a cycle: the collector need not walk a million of them.
    return msgspec.defstruct(name, fields, frozen=True, gc=False)


STRUCTS = {
    name: _struct(name, model, frozenset({"type"} | UNREAD.get(name, set())))
    for name, model in EVENT_TYPES.items()
}
UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""What a payload raises that is no JSON, not the event's, not text at all, or nested without end."""
FactRow = tuple[str, int, str, int, int, int, str]
"""type, round, event_id, sequence, position, schema_version, payload"""
DECODERS: dict[str, Callable[[str], Any]] = {
    name: msgspec.json.Decoder(struct).decode for name, struct in STRUCTS.items()
}


def light(type_: str, version: int, payload: str) -> Any:
    """The event's struct, upcast where it is old. Raises DamagedError where the payload does not fit."""
    try:
        if version == CURRENT.get(type_):
            return DECODERS[type_](payload)
        return msgspec.convert(upcast(type_, version, msgspec.json.decode(payload)), STRUCTS[type_])
    except UNREADABLE as error:
        raise _unreadable(type_, error) from error


S = TypeVar("S", bound=msgspec.Struct)


def reader(kind: type[S], type_: str) -> Callable[[int, str], S]:
    """Reads some fields of an event's payload, by its version: an audit has thousands, and a model takes
    long to validate. Raises DamagedError where the payload does not fit."""
    decode = msgspec.json.Decoder(kind).decode

    def read(version: int, payload: str) -> S:
        try:
            if version == CURRENT[type_]:
                return decode(payload)
            return msgspec.convert(upcast(type_, version, msgspec.json.decode(payload)), kind)
        except UNREADABLE as error:
            raise _unreadable(type_, error) from error

    return read


def facts(rows: Iterable[FactRow]) -> Iterator[Fact[Event]]:
    """Rows of the log for the fold. `light` of each, without a call for each: a replay is a million of them.

    Raises DamagedError at a payload that does not fit.
    """
    current, decoders, type_, position = CURRENT.get, DECODERS, "", None
    try:
        for type_, round_, event_id, sequence, position, version, payload in rows:
            event = decoders[type_](payload) if version == current(type_) else light(type_, version, payload)
            yield Fact(type_, round_, event_id, sequence, position, event)
    except UNREADABLE as error:
        raise _unreadable(type_, error, position) from error


def _unreadable(type_: str, error: Exception, position: int | None = None) -> DamagedError:
    said = str(error)
    if isinstance(error, ValidationError):  # pydantic's own words take four lines
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    which = "an event" if position is None else f"#{position}"
    return DamagedError(f"the payload of {which} {type_} cannot be read: {said}", position=position)


def full(type_: str, version: int, payload: str) -> Event:
    """The event as a model. Raises DamagedError where the payload does not fit."""
    try:
        if version == CURRENT.get(type_):
            return EVENT_TYPES[type_].model_validate_json(payload)
        current = upcast(type_, version, msgspec.json.decode(payload))
        return EVENT_TYPES[type_].model_validate(current)
    except UNREADABLE as error:
        raise _unreadable(type_, error) from error
