"""Which texts an event names, derived from the catalogue's types, so that no list can be incomplete."""

import re
from collections.abc import Iterator, Mapping
from types import NoneType
from typing import Any, cast, get_args, get_origin, get_type_hints

from diagevo.memory.events.catalogue import EVENT_TYPES, Digest, Event, Value

Naming = Mapping[str, "Naming"]
"""The fields of a part that name a text or contain parts that do, with the fields of those; none if the field
is the digest itself."""

_HEX = re.compile("[0-9a-f]{64}").fullmatch


def named_texts(event: Event) -> Iterator[tuple[str, str]]:
    """The field and the digest of each text that an event names."""
    naming = _NAMING.get(type(event))
    return iter(()) if naming is None else _found("", event, naming)


def refuse_no_digest(event: Event) -> None:
    """Raises ValueError if a field that names a text is not a digest. Apart from decoding: with a regular
    expression in the type of each, a replay took half as long again."""
    if all(map(_HEX, digests_of(event))):
        return
    where = next(where for where, digest in named_texts(event) if not _HEX(digest))
    raise ValueError(f"{where} is not the SHA-256 of a text, in lowercase hex")


def digests_of(event: Event) -> list[str]:
    """The digests of `named_texts`, without their fields: all that a writer or reader needs of each event."""
    found: list[str] = []
    if (naming := _NAMING.get(type(event))) is not None:
        _collect(event, naming, found)
    return found


def _collect(value: Any, naming: Naming, found: list[str]) -> None:
    """Few calls: it runs several times for each event."""
    if isinstance(value, list):
        if not naming:  # of digests
            found += cast("list[str]", value)
            return
        for part in cast("list[Any]", value):
            _collect(part, naming, found)
        return
    for name, inner in naming.items():
        part = getattr(value, name)
        if isinstance(part, str):
            found.append(part)
        elif part is not None:
            _collect(part, inner, found)


def _found(where: str, value: Any, naming: Naming) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, list):
        for index, part in enumerate(cast("list[Any]", value)):
            yield from _found(f"{where}[{index}]", part, naming)
    elif value is not None:
        for name, inner in naming.items():
            yield from _found(f"{where}.{name}" if where else name, getattr(value, name), inner)


def _naming(annotation: Any) -> Naming | None:
    """Of what an annotation allows; None where it names no text."""
    if annotation == Digest:
        return {}
    if isinstance(annotation, type) and issubclass(annotation, Value):
        hints = get_type_hints(annotation, include_extras=True)
        parts = {
            name: inner
            for name in annotation.__struct_fields__
            if (inner := _naming(hints[name])) is not None
        }
        return parts or None
    named = [naming for inner in get_args(annotation) if (naming := _naming(inner)) is not None]
    if not named:
        return None
    optional = len(get_args(annotation)) == 2 and NoneType in get_args(annotation)
    if get_origin(annotation) is list or optional:
        return named[0]
    raise TypeError(f"texts inside of {annotation} would not be found")


_NAMING: dict[type[Event], Naming] = {
    event: naming for event in EVENT_TYPES.values() if (naming := _naming(event)) is not None
}
NAMING = tuple(_NAMING)
"""The events that name texts."""
