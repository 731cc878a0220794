"""What the events of a run name by digest: texts, replies and vectors, each once, in a memory that stays
small."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Column, Table, select, tuple_

from diagevo.memory.artifacts import ARTIFACT, REPLY
from diagevo.memory.events import RunConfigured
from diagevo.memory.history import AsOf, History, expect
from diagevo.memory.vectors import VECTOR, Vectors, text_hash

PAGE = 400
_DIGESTS = ("question", "reference", "trajectory")
_EMBEDDED = {
    "CauseCreated": "description",
    "NodeCreated": "label",
    "NodesMerged": "label",
    "FailureDiagnosed": "description",
}
Rows = Iterator[dict[str, Any]]


def texts_of(history: History, as_of: AsOf) -> Iterator[tuple[str, Rows]]:
    """(name, rows) of each file beside the events. One pass over the events for each."""
    yield "texts", _rows(history, as_of, ARTIFACT, [ARTIFACT.c.digest], _digests)
    yield "replies", _rows(history, as_of, REPLY, [REPLY.c.model, REPLY.c.request], _requests)
    models = sorted(
        {
            Vectors(history.database, e.name, e.dimension, e.revision).model
            for r in history.events(RunConfigured, as_of=as_of)
            for e in [expect(r, RunConfigured).embedder]
        }
    )
    keys = [VECTOR.c.model, VECTOR.c.text_hash]
    yield "vectors", _rows(history, as_of, VECTOR, keys, lambda type_, p: _embedded(type_, p, models))


def _digests(type_: str, payload: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name in _DIGESTS:
        digest = payload.get(name)
        if digest is not None:
            yield (digest,)
    call = payload.get("call")
    if call is not None:
        yield from ((call[name],) for name in ("prompt", "request", "reply") if call[name] is not None)


def _requests(type_: str, payload: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    call = payload.get("call")
    if call is not None:
        yield call["model"], call["request"]


def _embedded(type_: str, payload: dict[str, Any], models: list[str]) -> Iterator[tuple[str, ...]]:
    field = _EMBEDDED.get(type_)
    text = payload.get(field) if field else None
    if text is not None:
        yield from ((model, text_hash(text)) for model in models)


def _rows(
    history: History,
    as_of: AsOf,
    table: Table,
    keys: list[Column],
    named: Callable[[str, dict[str, Any]], Iterator[tuple[str, ...]]],
) -> Rows:
    """The rows of `table` that the events name, each once. What was seen is kept in a file, not in memory."""
    seen = sqlite3.connect("")  # a database of its own in a temporary file, gone when it is closed
    try:
        seen.execute("CREATE TABLE seen (key TEXT PRIMARY KEY) WITHOUT ROWID")
        page: list[tuple[str, ...]] = []
        for recorded in history.events(as_of=as_of):
            for key in named(recorded.type, json.loads(recorded.payload)):
                fresh = seen.execute("INSERT OR IGNORE INTO seen VALUES (?)", ("\n".join(key),)).rowcount
                if fresh:
                    page.append(key)
            if len(page) >= PAGE:
                yield from _fetched(history, table, keys, page)
                page.clear()
        yield from _fetched(history, table, keys, page)
    finally:
        seen.close()


def _fetched(history: History, table: Table, keys: list[Column], page: list[tuple[str, ...]]) -> Rows:
    if not page:
        return
    chosen = keys[0].in_([k[0] for k in page]) if len(keys) == 1 else tuple_(*keys).in_(page)
    with history.database.read() as connection:
        rows = connection.execute(select(table).where(chosen).order_by(*keys)).mappings().all()
    for row in rows:
        yield {name: bytes(value) if isinstance(value, memoryview) else value for name, value in row.items()}
