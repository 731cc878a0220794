"""What the events of a run name: texts and vectors as rows of a bundle, in a memory that stays small."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from diagevo.errors import StoreError
from diagevo.memory.events import (
    CauseCreated,
    Event,
    FailureDiagnosed,
    NodeCreated,
    NodesMerged,
    RunConfigured,
)
from diagevo.memory.events.named_texts import NAMING, named_texts
from diagevo.memory.history import AsOf, History
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.log.vectors import Vectors, text_hash
from diagevo.text.escaping import utf8

PAGE = 400
_EMBEDDED = (CauseCreated, FailureDiagnosed, NodeCreated, NodesMerged)
Rows = Iterator[dict[str, Any]]


def embedded(event: Event) -> str | None:
    """The text of an event that is embedded, where it has one."""
    match event:
        case CauseCreated(description=text) | FailureDiagnosed(description=text):
            return text
        case NodeCreated(label=text) | NodesMerged(label=text):
            return text
        case _:
            return None


def texts_of(history: History, as_of: AsOf) -> Rows:
    """The texts of a run; one may come twice. Raises StoreError at one that is missing or not its digest's:
    no such bundle could be imported."""
    artifacts = Artifacts(history.database)
    events = history.events(*NAMING, as_of=as_of)
    for page in _pages(digest for fact in events for _, digest in named_texts(fact.event)):
        kept = artifacts.kept(page)
        for digest in page:
            if digest not in kept:
                raise StoreError(
                    f"the text {digest} is missing",
                    hint="see which event names it: diagevo memory verify --deep",
                )
            yield {"digest": digest, "content": utf8(kept[digest])}


def vectors_of(history: History, as_of: AsOf) -> Rows:
    """The vectors that there are, of each embedding model that the run had; one may come twice."""
    configured = history.events(RunConfigured, as_of=as_of)
    for embedder in {fact.event.embedder: None for fact in configured}:
        vectors = Vectors(history.database, history.run_id, embedder)
        events = history.events(*_EMBEDDED, as_of=as_of)
        for page in _pages(text for fact in events if (text := embedded(fact.event)) is not None):
            for text, vector in vectors.stored(page).items():
                row = {"model": vectors.model, "text_hash": text_hash(text)}
                yield row | {"vector": vector.astype("<f4").tobytes()}


def _pages(names: Iterable[str]) -> Iterator[list[str]]:
    """So many at a time; what comes again in a page counts once."""
    remaining = iter(names)
    while page := list(dict.fromkeys(islice(remaining, PAGE))):
        yield page
