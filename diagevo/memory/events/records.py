"""The envelope around an event: its id, its bytes, its hash. Pure; no database here."""

import hashlib
import math
import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec

from diagevo.errors import ConfigError, DamagedError, DiagEvoError
from diagevo.memory.events import Event, RunConfigured, Value
from diagevo.memory.events.catalogue import LARGEST, Digest
from diagevo.memory.events.decode import DECODERS, ENCODER, UNREADABLE, read
from diagevo.memory.events.named_texts import refuse_no_digest
from diagevo.text.escaping import storable
from diagevo.text.redaction import holds_secret

NAMESPACE = uuid.UUID("5b3c2f0e-6d0a-5c55-9d5e-0d1a6e5e7a01")
E = TypeVar("E", bound=Event)
GENESIS = "0" * 64
"""The predecessor's hash in a run's first event."""
LONGEST = 64 * 2**20
"""Maximum bytes of a bundle's row: more is neither written nor read."""
LONGEST_TEXT = LONGEST - 2**16
"""Maximum bytes of a payload and of a stored text: either must fit a bundle's row with its other columns."""


class Pending(msgspec.Struct, frozen=True, gc=False):
    """An event ready to be appended: all of its envelope but what the log assigns."""

    event_id: str
    round: int
    type: str
    schema_version: int
    cause_id: str | None
    payload: str
    causation_id: str | None


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An event as stored, one field per column."""

    position: int
    event_id: str
    run_id: str
    sequence: int
    round: int
    type: str
    schema_version: int
    cause_id: str | None
    payload: str
    causation_id: str | None
    recorded_at: str
    previous_hash: str
    hash: str

    @property
    def event(self) -> Event:
        """The payload, upcast to the current version."""
        return read(self.type, self.schema_version, self.payload)

    @property
    def computed_hash(self) -> str:
        """What `hash` must be if nobody changed the row."""
        return chain_hash(
            self.event_id,
            self.sequence,
            self.round,
            self.type,
            self.schema_version,
            self.cause_id,
            self.payload,
            self.causation_id,
            self.recorded_at,
            self.previous_hash,
        )


_KINDS = get_type_hints(Recorded)
_ROW: Any = cast("Any", tuple)[*_KINDS.values()]


def recorded(row: Sequence[Any]) -> Recorded:
    """The event of a stored row, its columns in the order of the table.

    Raises DamagedError if one has another type: SQLite keeps whatever is put into its file.
    """
    values = tuple(row)
    try:
        return Recorded(*msgspec.convert(values, _ROW))
    except msgspec.ValidationError as error:
        pairs = zip(_KINDS.items(), values, strict=True)
        name, value = next((name, v) for (name, kind), v in pairs if not isinstance(v, kind))
        found = "missing" if value is None else f"of type {type(value).__name__}"
        where = f"#{values[0]} is damaged: its {name} is {found}"
        raise DamagedError(where, position=values[0]) from error


def event_id(round: int, type_: str, key: str) -> str:
    """UUIDv5 of the business key: recording the same thing again gives the same id, in any run."""
    name = storable(f"{type_}:{round}:{key}").encode()
    digest = bytearray(hashlib.sha1(NAMESPACE.bytes + name, usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _refuse_unrecordable(value: Any, where: str) -> None:
    """Only finite JSON values: a set or a NaN would be stored as something else."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError(f"{where} is {value}: a number in the log must be finite")
    elif isinstance(value, Value):
        for name in value.__struct_fields__:
            _refuse_unrecordable(getattr(value, name), f"{where}.{name}")
    elif isinstance(value, dict):
        for key, inner in cast("dict[Any, Any]", value).items():
            if not isinstance(key, str):
                raise ConfigError(f"{where} has the key {key!r}: a key in the log must be text")
            _refuse_unrecordable(inner, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("Sequence[Any]", value)):
            _refuse_unrecordable(inner, f"{where}[{index}]")
    elif value is not None and not isinstance(value, str | int):
        name = where.partition(".")[0]
        raise ConfigError(
            f"{where} is a {type(value).__name__}, which the log does not keep",
            hint=f"help(diagevo.memory.events.{name}) names the type of each field",
        )


def storable_event(event: E) -> E:
    """The event with each text as a database keeps it (`texts.storable`), else as in `recordable`."""
    name = type(event).__name__
    _refuse_unrecordable(event, name)
    try:
        return recordable(msgspec.convert(_storable(msgspec.to_builtins(event)), type(event)))[0]
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name} cannot be recorded: {error}") from error


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {_storable(key): _storable(inner) for key, inner in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_storable(each) for each in cast("Sequence[Any]", value)]
    return value


class UnstorableText(ConfigError):
    """An event contains a text that not every database can store.

    The memory changes it (`storable_event`).
    """

    def __init__(self, event: Event) -> None:
        super().__init__(
            f"{type(event).__name__} has a NUL or half a surrogate pair in a text",
            hint="leave it out, or write it through diagevo.open: the memory replaces it with U+FFFD",
        )


_FIELD = re.compile(r"(.*) - at `\$\.([a-z_0-9]+)`", re.DOTALL)


def _explained(event: Event, error: Exception) -> str:
    """Which field is wrong, and what it may be: the decoder knows its rules, not our words."""
    found = _FIELD.fullmatch(str(error))
    if found is None:
        return str(error)
    what, field = found.groups()
    value = repr(getattr(event, field))
    given = f"{field} is {value if len(value) <= 80 else f'{value[:80]}…'}"
    kinds = [get_type_hints(type(event), include_extras=True)[field]]
    kinds += get_args(kinds[0])
    if allowed := next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), None):
        return f"{given}, not one of {', '.join(map(str, allowed))}"
    if Digest in kinds:
        return f"{given}, not the digest of a text: memory.artifacts.put(TEXT) stores it and returns that"
    return f"{given}: {what}"


def recordable(event: E) -> tuple[E, str]:
    """The event as it will be read again, and its payload: canonical JSON without the tag, in UTF-8, keys
    sorted, no spaces.

    Its validation: it is encoded, strictly decoded, and must come back the same. Raises ConfigError where a
    value has another type than the catalogue says or JSON does not have it, UnstorableText for what a
    database does not have.
    """
    name = type(event).__name__
    try:
        kept = cast("E", DECODERS[name](ENCODER.encode(event).decode()))
        refuse_no_digest(kept)
    except UnicodeEncodeError:
        raise UnstorableText(event) from None
    except UNREADABLE as error:
        _refuse_unrecordable(event, name)
        raise ConfigError(f"{name} cannot be recorded: {_explained(event, error)}") from error
    if kept != event:  # a tuple may have become a list, and nothing else anything
        _refuse_unrecordable(event, name)
    payload = ENCODER.encode(kept).decode()
    if "\\u0000" in payload and _storable(plain := msgspec.to_builtins(kept)) != plain:
        raise UnstorableText(event)
    return kept, payload


def payload_of(event: Event) -> str:
    """The payload of `recordable`."""
    return recordable(event)[1]


def wrapped(run_id: str, round: int, event: E, causation_id: str | None = None) -> tuple[E, Pending]:
    """The event as it will be read again, and its envelope. `causation_id`: the event it follows from."""
    kept, payload = recordable(event)
    if isinstance(kept, RunConfigured) and holds_secret(msgspec.to_builtins(kept)):
        raise ConfigError(
            f"the configuration of run {run_id} holds a password, key or token; the log would keep it",
            hint="leave it out, or name the environment variable that holds it",
        )
    name = type(kept).__name__
    if type(round) is not int or not 0 <= round <= LARGEST:
        raise ConfigError(
            f"{name} cannot be recorded: its round is {round!r}, not a number from 0 to {LARGEST}"
        )
    if len(payload) > LONGEST_TEXT // 4 and len(payload.encode()) > LONGEST_TEXT:
        raise ConfigError(f"{name} cannot be recorded: it has more than {LONGEST_TEXT:,} bytes")
    return kept, Pending(
        event_id=event_id(round, name, kept.key()),
        round=round,
        type=name,
        schema_version=kept.schema_version,
        cause_id=getattr(kept, "cause_id", None),
        payload=payload,
        causation_id=causation_id,
    )


def pending(run_id: str, round: int, event: Event, causation_id: str | None = None) -> Pending:
    """Wrap `event` for the log: the envelope of `wrapped`."""
    return wrapped(run_id, round, event, causation_id)[1]


def chain_hash(  # noqa: PLR0917  (a row of the table, handed over whole for each event that is read)
    event_id: str,
    sequence: int,
    round: int,
    type_: str,
    schema_version: int,
    cause_id: str | None,
    payload: str,
    causation_id: str | None,
    recorded_at: str,
    previous: str,
) -> str:
    """SHA-256 in hex over the columns that are the run's own: neither its name nor the position, which say
    where the history lies. So a head names a history, and a copy of it has the same one.

    Numbers first, each ended by a bar; then the texts, each after its length in characters, `-` for null:
    no two rows have the same text. One encoding of one text keeps this at a microsecond or two.
    """
    cause = "-:" if cause_id is None else f"{len(cause_id)}:{cause_id}"
    causation = "-:" if causation_id is None else f"{len(causation_id)}:{causation_id}"
    text = (
        f"{sequence}|{round}|{schema_version}|{len(previous)}:{previous}{len(event_id)}:{event_id}"
        f"{len(type_)}:{type_}{cause}{len(payload)}:{payload}{causation}{len(recorded_at)}:{recorded_at}"
    )
    return hashlib.sha256(text.encode()).hexdigest()


UNFIT = (DiagEvoError, ValueError, RecursionError)
"""What `Chain` raises at an event that no writer wrote there; the message says why."""
FIRST_LOGS = datetime(2020, 1, 1, tzinfo=UTC)
CLOCKS_APART = timedelta(minutes=1)
"""Between two machines that write a run in turn, or before and after a clock is set right."""
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Chain:
    """One run's events in their order, each held against the one before it: the door that a bundle, a fork
    and a verification go through. Each further event is first `follows`, then `read`."""

    def __init__(self) -> None:
        self.hash: str = GENESIS
        self.sequence = 0
        self._ids: set[str] = set()
        """Of the round under way."""
        self._promotions: set[str] = set()
        """Of every promotion: later events may name those."""
        self._time = FIRST_LOGS
        self.misdated = 0
        """Events that are dated before the one they follow, by more than `CLOCKS_APART`, or before there were
        such logs: a clock was wrong. Order is by position, so nothing else follows from a time."""
        self.first_misdated: Recorded | None = None

    def follows(self, recorded: Recorded) -> None:
        """Take its hash. Raises ValueError where its bytes are others, or it does not come next."""
        if recorded.sequence != self.sequence + 1:
            missing = f"event {self.sequence + 1} of the run is missing"
            raise ValueError(f"{missing}: #{recorded.position} is event {recorded.sequence}")
        what = f"#{recorded.position} {recorded.type}"
        if recorded.hash != recorded.computed_hash:
            raise ValueError(f"the bytes of {what} are not those that were written")
        if recorded.previous_hash != self.hash:
            raise ValueError(f"{what} does not follow the event before it")
        self.hash, self.sequence = recorded.hash, recorded.sequence

    def read(self, recorded: Recorded) -> Event:
        """What it says. Raises ValueError or DiagEvoError where payload and envelope do not agree, or are not
        spelled as a writer spells them."""
        event = recorded.event
        if "\\u0000" in recorded.payload and _NUL.search(recorded.payload):
            raise ValueError("it holds a NUL, which no database keeps")
        if not 0 <= recorded.round <= LARGEST:
            raise ValueError(f"its round is {recorded.round}")
        time = datetime.fromisoformat(recorded.recorded_at)
        if time.isoformat(timespec="microseconds") != recorded.recorded_at or time.tzinfo != UTC:
            raise ValueError(f"its time is {recorded.recorded_at!r}, not one of UTC with microseconds")
        if self._time - time > CLOCKS_APART:
            self.misdated += 1
            self.first_misdated = self.first_misdated or recorded
        self._time = time
        if recorded.event_id != event_id(recorded.round, recorded.type, event.key()):
            raise ValueError("its id is another event's")
        if recorded.cause_id != getattr(event, "cause_id", None):
            raise ValueError("its cause is not its payload's")
        origin = recorded.causation_id
        if origin is not None and origin not in self._ids and origin not in self._promotions:
            raise ValueError("what it follows from is not in its round")
        self._ids.add(recorded.event_id)
        if recorded.type == "CausePromoted":
            self._promotions.add(recorded.event_id)
        elif recorded.type in ("RoundCommitted", "RoundsSuperseded"):
            self._ids.clear()
        return event
