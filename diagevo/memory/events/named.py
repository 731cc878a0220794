"""Which texts an event names: read off the catalogue's types, so that there is no list to forget one in."""

from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, cast, get_args, get_origin, get_type_hints

import msgspec
from pydantic import BaseModel

from diagevo.memory.events import EVENT_TYPES, Digest
from diagevo.memory.events.decode import reader


def named_texts(type_: str, version: int, payload: str) -> Iterator[tuple[str, str]]:
    """The field and the digest of each text that an event names. Raises DamagedError where the payload does
    not fit, StoreError where a newer version wrote it."""
    read = _READERS.get(type_)
    return iter(()) if read is None else _found("", read(version, payload))


def _found(where: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, list):
        for index, part in enumerate(cast("list[Any]", value)):
            yield from _found(f"{where}[{index}]", part)
    elif value is not None:
        for name in value.__struct_fields__:
            yield from _found(f"{where}.{name}" if where else name, getattr(value, name))


def _naming(annotation: Any) -> Any:
    """The annotation with those fields alone that name a text; None where there is none."""
    if annotation == Digest:
        return str
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        hints = get_type_hints(annotation, include_extras=True)
        parts = {name: part for name, hint in hints.items() if (part := _naming(hint)) is not None}
        fields = [(name, part | None, None) for name, part in parts.items()]
        return msgspec.defstruct(annotation.__name__, fields, gc=False) if fields else None
    named = [part for inner in get_args(annotation) if (part := _naming(inner)) is not None]
    if not named:
        return None
    if get_origin(annotation) is list:
        return list[named[0]]
    if len(get_args(annotation)) == 2 and NoneType in get_args(annotation):
        return named[0] | None
    raise TypeError(f"texts inside of {annotation} would not be found")


_READERS: dict[str, Callable[[int, str], Any]] = {
    name: reader(part, name) for name, event in EVENT_TYPES.items() if (part := _naming(event)) is not None
}
NAMING = tuple(EVENT_TYPES[name] for name in _READERS)
"""The events that name texts."""
