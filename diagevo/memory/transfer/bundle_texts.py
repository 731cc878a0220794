"""What the events of a run name by digest: texts, replies and vectors, each once, in a memory that stays
small."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, cast

import msgspec
from sqlalchemy import Column, Table, select, tuple_

from diagevo.errors import StoreError
from diagevo.memory.audit.seen import Seen
from diagevo.memory.events import (
    EVENT_TYPES,
    CauseCreated,
    Event,
    FailureDiagnosed,
    NodeCreated,
    NodesMerged,
    RunConfigured,
)
from diagevo.memory.events.named_texts import NAMING, named_texts
from diagevo.memory.history import AsOf, History, expect
from diagevo.memory.log.artifacts import ARTIFACT, REPLY, is_text
from diagevo.memory.log.tables import brought
from diagevo.memory.log.vectors import VECTOR, model_of, text_hash

PAGE = 400
_EMBEDDED = {
    "CauseCreated": "description",
    "NodeCreated": "label",
    "NodesMerged": "label",
    "FailureDiagnosed": "description",
}
_EMBEDDING = (CauseCreated, NodeCreated, NodesMerged, FailureDiagnosed)
_ASKING = tuple(event for event in EVENT_TYPES.values() if "call" in event.__struct_fields__)
"""Events with a call of a model."""
_ASKING_TYPES = {event.__name__ for event in _ASKING}
Rows = Iterator[dict[str, Any]]
Keys = Iterator[tuple[str, ...]]
Found = Iterator[tuple[tuple[str, ...], dict[str, Any] | None]]


def rows_of(history: History, as_of: AsOf) -> Iterator[tuple[str, Rows]]:
    """(table, rows) of each table beside the events. One pass over the events for each."""
    keys = [REPLY.c.model, REPLY.c.request, REPLY.c.text]
    yield "reply", _rows(history, REPLY, keys, _named(history, as_of, _ASKING, requests))
    yield "artifact", _texts(history, as_of)
    configured = history.events(RunConfigured, as_of=as_of)
    models = sorted({model_of(expect(r, RunConfigured).embedder) for r in configured})
    pairs = ((model, hash_) for (hash_,) in _named(history, as_of, _EMBEDDING, embedded) for model in models)
    yield "vector", _rows(history, VECTOR, [VECTOR.c.model, VECTOR.c.text_hash], pairs)


def _texts(history: History, as_of: AsOf) -> Rows:
    """Raises StoreError at a text that is missing or not its digest's: no such bundle could be imported."""
    for digest, row in _found(history, ARTIFACT, [ARTIFACT.c.digest], _digests(history, as_of)):
        if row is None or not is_text(row["content"], *digest):
            raise StoreError(
                f"the text {digest[0]} {'was changed' if row else 'is missing'}",
                hint="see which event names it: diagevo memory verify --deep",
            )
        yield row


def _digests(history: History, as_of: AsOf) -> Keys:
    for recorded in history.events(*NAMING, as_of=as_of):
        for _, digest in named_texts(recorded.event):
            yield (digest,)


def _named(
    history: History,
    as_of: AsOf,
    types: tuple[type[Event], ...],
    named: Callable[[str, dict[str, Any]], Keys],
) -> Keys:
    for recorded in history.events(*types, as_of=as_of):
        yield from named(recorded.type, msgspec.json.decode(recorded.payload))


def requests(type_: str, payload: dict[str, Any]) -> Keys:
    """Model, request and reply of the call that an event names, where one came."""
    call = payload.get("call") if type_ in _ASKING_TYPES else None
    if call is not None and call["reply"] is not None:
        yield call["model"], call["request"], call["reply"]


def embedded(type_: str, payload: dict[str, Any]) -> Keys:
    """The hash of the text of an event that is embedded, where it has one."""
    field = _EMBEDDED.get(type_)
    text = payload.get(field) if field else None
    if text is not None:
        yield (text_hash(text),)


def _rows(history: History, table: Table, keys: list[Column[Any]], named: Keys) -> Rows:
    """The rows of `table` that are named and there, each once."""
    return (row for _, row in _found(history, table, keys, named) if row is not None)


def _found(history: History, table: Table, keys: list[Column[Any]], named: Keys) -> Found:
    """Each key that is named, once, with its row."""
    page: list[tuple[str, ...]] = []
    with closing(Seen()) as seen:
        for key in named:
            if seen.add("\n".join(key)):
                page.append(key)
            if len(page) == PAGE:
                yield from _fetched(history, table, keys, page)
                page.clear()
        yield from _fetched(history, table, keys, page)


def _fetched(history: History, table: Table, keys: list[Column[Any]], page: list[tuple[str, ...]]) -> Found:
    if not page:
        return
    if len(keys) == 1:
        chosen = keys[0].in_([k[0] for k in page])
    else:  # by model: a row that came with the run's import is the run's too
        chosen = tuple_(*keys).in_([*page, *((brought(model, history.run_id), *of) for model, *of in page)])
    with history.database.read() as connection:
        rows = connection.execute(select(table).where(chosen).order_by(*keys)).mappings().all()
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        values: dict[str, Any] = {name: _plain(value) for name, value in row.items()}
        if "model" in values:
            values["model"] = values["model"].removesuffix(f"\n{history.run_id}")
        found.setdefault(tuple(values[key.name] for key in keys), values)
    yield from ((key, found.get(key)) for key in sorted(page))


def _plain(value: Any) -> Any:
    """psycopg gives bytes as a memoryview."""
    return bytes(cast("memoryview[int]", value)) if isinstance(value, memoryview) else value
