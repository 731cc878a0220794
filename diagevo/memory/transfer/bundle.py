"""A run as one file: its events with the chain's head, and the texts and vectors that they name.

Written and read a page at a time, so that a run of any length fits. `import_bundle` verifies all of a bundle
while it reads (`bundle_file`, `copying`) and takes the whole or nothing; `check_bundle` verifies alone and
writes nothing, and `export_bundle` does so with what it wrote. A run has the same head wherever it lies.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import msgspec

from diagevo.errors import ConfigError, InconsistentError, StoreError
from diagevo.memory.audit.ingested_groups import first_mismatch, mismatch
from diagevo.memory.events import (
    CandidateScored,
    CauseAdded,
    CauseCreated,
    Event,
    FailureDiagnosed,
    FailureObserved,
    GroupIngested,
    NodeCreated,
    NodesMerged,
    RunConfigured,
)
from diagevo.memory.events.decode import E, Fact
from diagevo.memory.events.named_texts import NAMING, named_texts
from diagevo.memory.events.records import GENESIS, Recorded
from diagevo.memory.history import AsOf, History
from diagevo.memory.log.artifacts import Artifacts, DigestSet, upsert_text
from diagevo.memory.log.database import Database, insert_missing
from diagevo.memory.log.log import Log, now
from diagevo.memory.log.tables import VECTOR, imported_vector_key
from diagevo.memory.log.vectors import Vectors, text_hash
from diagevo.memory.places import check_name, check_place, runs_folder
from diagevo.memory.state.model import Attempts
from diagevo.memory.transfer.bundle_file import EXPORT_AGAIN, Rows, UntrustedBundle, Writer, embedded
from diagevo.memory.transfer.copying import CopiedRun, Copy, HistoryReader, keep_heads, twice
from diagevo.private import atomic_file
from diagevo.text.escaping import utf8

BATCH = 500
_EMBEDDED = (CauseAdded, CauseCreated, FailureDiagnosed, NodeCreated, NodesMerged)


@dataclass(frozen=True, slots=True)
class Exported:
    """A bundle that was written and verified. `head` is the hash of its last event."""

    file: Path
    run_id: str
    events: int
    round: int
    head: str
    texts: int
    vectors: int


def export_bundle(history: History, as_of: AsOf, file: Path) -> Exported:
    """Write a run up to that point into a new file, verified before it gets its name. Raises ConfigError
    where the file is there, StoreError where the run does not hold."""
    if os.path.lexists(file):
        raise ConfigError(f"{file} exists", hint="name a new file: a bundle never replaces one")
    try:
        with atomic_file(file) as part:
            with closing(Writer(part)) as out:
                head = _write(history, as_of, out)
            check_bundle(part)
    except (OSError, sqlite3.Error) as error:
        problem = error.strerror if isinstance(error, OSError) else error
        raise StoreError(
            f"the bundle {file} cannot be written: {problem}",
            hint="name a new file where you may write and that has room",
        ) from error
    rows = out.rows
    return Exported(
        file=file,
        run_id=history.run_id,
        events=rows["event"],
        round=as_of.round,
        head=head,
        texts=rows["artifact"],
        vectors=rows["vector"],
    )


def _write(history: History, as_of: AsOf, out: Writer) -> str:
    head, sequence = GENESIS, 0
    for recorded in history.log.read(history.run_id, until=as_of.position):
        out.add("event", msgspec.structs.asdict(recorded))
        head, sequence = recorded.hash, recorded.sequence
    run = {
        "run_id": history.run_id,
        "sequence": sequence,
        "hash": head,
        "created_at": now(),
        "imported": None,
    }
    out.add("run", run)
    for row in texts_of(history, as_of):
        out.add("artifact", row)
    for row in vectors_of(history, as_of):
        out.add("vector", row)
    return head


def check_bundle(file: Path) -> CopiedRun:
    """Verify a bundle as `import_bundle` does, and write nothing. Raises as it does."""
    with closing(UntrustedBundle(file)) as bundle:
        run_id = bundle.run["run_id"]
        check_name(run_id)
        with closing(_Checked(run_id, bundle)) as checked:
            _take_events(bundle, checked)
            _refuse(bundle, checked.first_mismatch())
        for taken in (bundle.texts(), bundle.vectors()):
            deque(taken, maxlen=0)
        return checked.taken()


class _Checked(HistoryReader):
    """The events of a bundle, read alone. Ids and places are kept in a file that is gone when it is closed:
    no id may come twice, and groups come again by round, with what was made of them."""

    def __init__(self, run_id: str, bundle: UntrustedBundle) -> None:
        super().__init__(run_id)
        self._bundle, self._ids = bundle, DigestSet()
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute(
            "CREATE TABLE place (type, round, position, PRIMARY KEY (type, round, position)) WITHOUT ROWID"
        )
        self._file.execute("BEGIN")

    def _add(self, recorded: Recorded, event: Event) -> Fact[Event]:
        r = recorded
        if not self._ids.add(r.event_id):
            raise twice(self._bundle.called, EXPORT_AGAIN)
        if isinstance(event, (GroupIngested, CandidateScored, FailureObserved)):
            self._file.execute("INSERT INTO place VALUES (?, ?, ?)", (r.type, r.round, r.position))
        return super()._add(recorded, event)

    def first_mismatch(self) -> tuple[int, str] | None:
        """As `groups.first_mismatch`."""
        if not any(self._facts(GroupIngested)):
            return None
        return mismatch(
            self.state,
            Attempts(self._facts(GroupIngested)),
            lambda batch: self._facts(GroupIngested, round=batch),
            lambda number: self._facts(CandidateScored, FailureObserved, round=number),
        )

    def _facts(self, *types: type[E], round: int | None = None) -> Iterator[Fact[E]]:
        """Of these types, in order."""
        found = self._file.execute(
            "SELECT position FROM place WHERE type IN (?, ?) AND round = ifnull(?, round) ORDER BY position",
            (types[0].__name__, types[-1].__name__, round),
        )
        return cast("Iterator[Fact[E]]", self._bundle.facts(position for (position,) in found))

    def close(self) -> None:
        self._ids.close()
        self._file.close()


def import_bundle(
    file: Path, database: Database, name: str | None = None, *, root: Path | None = None
) -> CopiedRun:
    """Read a bundle into a new run (`name`, or its own). Verified on the way: all of it is taken or nothing.

    Its tables against those that a bundle has; every event against its hash, its predecessor and the fold,
    the last against the head that the bundle names; texts against their digests; vectors, which serve this
    run alone, against what the events name. A text that is wrong in the database becomes right.
    Raises StoreError where the bundle is damaged, ConfigError where the run exists and for a name that a run
    cannot have.
    """
    with closing(UntrustedBundle(file)) as bundle:
        run_id = bundle.run["run_id"] if name is None else name
        check_name(run_id)
        place = runs_folder(database, root) / run_id
        check_place(database, place)
        with nullcontext() if Log(database).last_position() else database.bulk_load():
            written = _take(bundle, database, run_id, place)
    keep_heads(place, written)
    return written


def _take(bundle: UntrustedBundle, database: Database, run_id: str, place: Path) -> CopiedRun:
    """All rows, in one transaction. `place`: the folder of the new run."""
    with database.write() as connection:
        copy = Copy(connection, Log(database), run_id, place)
        _take_events(bundle, copy)
        written = copy.finish(imported=copy.chain.hash)
        _refuse(bundle, first_mismatch(copy.log, copy.state))
        for add, taken in (
            (upsert_text(database), bundle.texts()),
            (insert_missing(database, VECTOR), _brought(bundle.vectors(), run_id)),
        ):
            while batch := list(islice(taken, BATCH)):
                connection.execute(add, batch)
    return written


def _take_events(bundle: UntrustedBundle, reading: HistoryReader) -> None:
    try:
        reading.take(bundle.events(), bundle.called, EXPORT_AGAIN, bundle.note)
    except InconsistentError as error:
        raise _impossible(bundle, error.message, error.hint) from error


def _refuse(bundle: UntrustedBundle, mismatch: tuple[int, str] | None) -> None:
    if mismatch is not None:
        raise _impossible(bundle, f"#{mismatch[0]}: {mismatch[1]}")


def _impossible(bundle: UntrustedBundle, what: str, hint: str | None = None) -> InconsistentError:
    return InconsistentError(f"{bundle.called} has an impossible history: {what}", hint=hint or EXPORT_AGAIN)


def _brought(rows: Iterator[dict[str, Any]], run_id: str) -> Iterator[dict[str, Any]]:
    """Vectors of texts that the events name, yet the bundle's word alone for what a model made of them."""
    return (row | {"model": imported_vector_key(row["model"], run_id)} for row in rows)


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
    while page := list(dict.fromkeys(islice(remaining, BATCH))):
        yield page
