"""What the events of a run name by digest: texts, replies and vectors, in a memory that stays small."""

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Column, Table, select, tuple_

from diagevo.errors import StoreError
from diagevo.memory.events import (
    EVENT_TYPES,
    Call,
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
_ASKING = tuple(event for event in EVENT_TYPES.values() if "call" in event.__struct_fields__)
"""Events with a call of a model."""
_EMBEDDED = (CauseCreated, FailureDiagnosed, NodeCreated, NodesMerged)
Keys = Iterator[tuple[str, ...]]
Rows = Iterator[dict[str, Any]]


def requests(event: Event) -> Keys:
    """Model, request and reply of the call that an event names, where one came."""
    call: Call | None = getattr(event, "call", None)
    if call is not None and call.reply is not None:
        yield call.model, call.request, call.reply


def embedded(event: Event) -> Keys:
    """The hash of the text of an event that is embedded, where it has one."""
    match event:
        case CauseCreated(description=str(text)) | FailureDiagnosed(description=str(text)):
            yield (text_hash(text),)
        case NodeCreated(label=text) | NodesMerged(label=text):
            yield (text_hash(text),)
        case _:
            pass


def rows_of(history: History, as_of: AsOf) -> Iterator[tuple[str, Rows]]:
    """(table, rows) of each table beside the events; a row may come twice. One pass over the events for each.

    Raises StoreError at a text that is missing or not its digest's: no such bundle could be imported.
    """

    def keys(types: tuple[type[Event], ...], of: Callable[[Event], Keys]) -> Keys:
        for recorded in history.events(*types, as_of=as_of):
            yield from of(recorded.event)

    models = {model_of(expect(r, RunConfigured).embedder) for r in history.events(RunConfigured, as_of=as_of)}
    yield (
        "reply",
        _stored(history, REPLY, [REPLY.c.model, REPLY.c.request, REPLY.c.text], keys(_ASKING, requests)),
    )
    digests = keys(NAMING, lambda event: ((digest,) for _, digest in named_texts(event)))
    yield "artifact", _stored(history, ARTIFACT, [ARTIFACT.c.digest], digests)
    vectors = ((model, hash_) for (hash_,) in keys(_EMBEDDED, embedded) for model in sorted(models))
    yield "vector", _stored(history, VECTOR, [VECTOR.c.model, VECTOR.c.text_hash], vectors)


def _stored(history: History, table: Table, columns: list[Column[Any]], keys: Keys) -> Rows:
    """The rows of these keys, a page at a time; a key that comes again in a page counts once."""
    page: dict[tuple[str, ...], None] = {}
    for key in keys:
        page[key] = None
        if len(page) == PAGE:
            yield from _fetched(history, table, columns, sorted(page))
            page.clear()
    if page:
        yield from _fetched(history, table, columns, sorted(page))


def _fetched(history: History, table: Table, columns: list[Column[Any]], page: list[tuple[str, ...]]) -> Rows:
    chosen = page
    if "model" in table.c:  # a row that came with the run's import is the run's too
        chosen = [*page, *((brought(model, history.run_id), *of) for model, *of in page)]
    query = select(table).where(tuple_(*columns).in_(chosen)).order_by(*columns)
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    with history.database.read() as connection:
        for row in connection.execute(query).mappings():
            values = dict(row)
            if "model" in values:
                values["model"] = values["model"].removesuffix(f"\n{history.run_id}")
            found.setdefault(tuple(values[column.name] for column in columns), values)
    for key in page:
        row = found.get(key)
        if table is ARTIFACT and (row is None or not is_text(row["content"], *key)):
            raise StoreError(
                f"the text {key[0]} {'was changed' if row else 'is missing'}",
                hint="see which event names it: diagevo memory verify --deep",
            )
        if row is not None:
            yield row
