"""The event log: append with an expected version, read in order.

Positions (global) and sequences (of a run) are given under the writers' lock and have no gaps. The lock is
SQLite's BEGIN IMMEDIATE, and on PostgreSQL the row of `log`. An append is idempotent by run and event_id, and
linked to the run's last event by its hash.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, insert, select

from diagevo.errors import ConflictError, DamagedError, NotFoundError, StaleWriterError
from diagevo.memory.events import Event
from diagevo.memory.events.decode import FACT, Fact, FactRow, facts
from diagevo.memory.events.records import GENESIS, Pending, Recorded, chain_hash, recorded
from diagevo.memory.log.database import Database, list_param
from diagevo.memory.log.heads import RunEntry
from diagevo.memory.log.prepared import PAGE, Prepared
from diagevo.memory.log.statements import COLUMNS, HEAD, ONE, Statements
from diagevo.memory.log.tables import EVENT, LOG, RUN

E = TypeVar("E", bound=Event)
_FOUND = EVENT.alias("found")
LATEST = "latest"
"""In place of a run's name: the most recently written run."""


def now() -> str:
    """UTC with microseconds. Recorded for people; the fold never reads it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a run's chain."""

    sequence: int
    hash: str


class Appended(NamedTuple):
    """The position of each event, whether it is new, and when the new ones are recorded."""

    positions: list[int]
    fresh: list[bool]
    recorded_at: str


class Log:
    """Append and read; inside a transaction of the same thread (`Database.write`) they join it."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @cached_property
    def _write(self) -> Statements:
        return Statements(self.database)

    @cached_property
    def _head(self) -> Prepared:
        return Prepared(self.database.engine, select(*HEAD).where(RUN.c.run_id == bindparam("run")), ["run"])

    @cached_property
    def _facts(self) -> Prepared:
        bounds = (EVENT.c.sequence > bindparam("after"), EVENT.c.sequence <= bindparam("until"))
        rows = select(*(EVENT.c[name] for name in FACT)).where(EVENT.c.run_id == bindparam("run"), *bounds)
        return Prepared(self.database.engine, rows.order_by(EVENT.c.sequence), ["run", "after", "until"])

    def append(self, run_id: str, expected: int, events: Sequence[Pending]) -> Appended:
        """Append events to a run, all or none. Recorded events keep their position, so a repeat is harmless.

        Args:
            run_id: The run.
            expected: Sequence of the last event that the writer has seen.
            events: What to append.

        Returns:
            The position of each event, whether it is new, and when the new ones are recorded.

        Raises:
            ConflictError: An id is recorded already with other content.
            StaleWriterError: The run has moved past `expected`, unless everything is recorded already.
        """
        with self.database.write() as connection:
            self.lock(connection)
            ids = [event.event_id for event in events]
            stand = self._write.stand.one(connection, run_id, list_param(self.database, ids), run_id)
            if stand is None:
                raise DamagedError("the row that gives the positions is missing")
            last, taken, *stored = stand
            head = Head(0, GENESIS) if stored[0] is None else Head(*stored)
            stale = expected != head.sequence
            known = self._known(run_id, events) if stale or taken or len(set(ids)) < len(ids) else {}
            if stale and any(id_ not in known for id_ in ids):
                raise StaleWriterError(
                    f"run {run_id} is at sequence {head.sequence}, this writer expected {expected}",
                    hint="somebody else wrote in between: open the run again",
                )
            new: list[Pending] = []
            positions: list[int] = []
            fresh: list[bool] = []
            at = now()
            for event in events:
                position = known.get(event.event_id)
                fresh.append(position is None)
                if position is None:
                    new.append(event)
                    known[event.event_id] = position = last + len(new)
                positions.append(position)
            if new:
                if stored[0] is None:
                    self.create_run(connection, run_id)
                self._record(connection, _chained(run_id, head, last, new, at))
            return Appended(positions, fresh, at)

    def _known(self, run_id: str, events: Sequence[Pending]) -> dict[str, int]:
        """Positions of those events that the run has. Raises ConflictError if the content differs, or if
        an id appears twice with different content."""
        given: dict[str, Pending] = {}
        for event in events:
            if given.setdefault(event.event_id, event) != event:
                raise ConflictError(f"{event.type} {event.event_id} comes twice, with different content")
        stored = self.known(run_id, given)
        for event_id, found in stored.items():
            event = given[event_id]
            if any(getattr(found, name) != getattr(event, name) for name in Pending.__struct_fields__):
                raise ConflictError(
                    f"{event.type} {event_id} is recorded at position {found.position} with other content",
                    hint=f"recorded: {found.payload[:200]}\ngiven:    {event.payload[:200]}",
                )
        return {event_id: found.position for event_id, found in stored.items()}

    def _record(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert the rows and move the heads."""
        position, _, run_id, sequence, *_, hash_ = rows[-1]
        if self._write.insert_and_move is not None:  # one message to the server: others wait for it
            columns = map(list, zip(*rows, strict=True))
            self._write.insert_and_move(connection, position, sequence, hash_, run_id, *columns)
            return
        self._write.insert.many(connection, rows)
        self._write.move_log(connection, position)
        self._write.move_run(connection, sequence, hash_, run_id)

    def create_run(
        self,
        connection: Connection,
        run_id: str,
        sequence: int = 0,
        hash_: str = GENESIS,
        imported: str | None = None,
    ) -> None:
        """The run's row. Under the writers' lock."""
        row = {"run_id": run_id, "sequence": sequence, "hash": hash_, "created_at": now()}
        connection.execute(insert(RUN), row | {"imported": imported})

    def lock(self, connection: Connection) -> None:
        """Wait for the writers' lock. (On SQLite BEGIN IMMEDIATE has it already.)

        What PostgreSQL reads in one statement with the lock may be older than the lock: read after it.
        """
        if self.database.dialect == "postgresql":
            self._write.queue(connection)

    def head(self, run_id: str) -> Head:
        """Where the run's chain ends; sequence 0 for a run without events."""
        with self.database.read() as connection:
            row = self._head.one(connection, run_id)
        if row is None:
            return Head(0, GENESIS)
        if [type(value) for value in row] != [int, str]:
            raise DamagedError(f"the head of run {run_id} is damaged: {tuple(row)!r}")
        return Head(*row)

    def imported(self, run_id: str) -> str | None:
        """The head with which the run was imported; None for a local run."""
        entry = self._entry(run_id)
        return None if entry is None else entry.imported

    def entry(self, run_id: str) -> RunEntry:
        """What the database records about an existing run besides its events."""
        entry = self._entry(run_id)
        assert entry is not None
        return entry

    def _entry(self, run_id: str) -> RunEntry | None:
        with self.database.read() as connection:
            query = select(RUN.c.created_at, RUN.c.imported).where(RUN.c.run_id == run_id)
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        if not isinstance(row.created_at, str) or not isinstance(row.imported, str | None):
            raise DamagedError(f"where run {run_id} came from is damaged: {tuple(row)!r}")
        return RunEntry(*row)

    def runs(self) -> list[str]:
        """Every run of the database, oldest first."""
        with self.database.read() as connection:
            query = select(RUN.c.run_id).where(RUN.c.sequence > 0).order_by(RUN.c.created_at, RUN.c.run_id)
            names = list(connection.execute(query).scalars())
        if not all(isinstance(name, str) for name in names):
            raise DamagedError("a run's name is damaged: it is not text")
        return names

    def read(
        self,
        run_id: str | None = None,
        *,
        rounds: tuple[int, int] | None = None,
        types: Sequence[str] | None = None,
        cause_id: str | None = None,
        causation_id: str | None = None,
        after: int = 0,
        until: int | None = None,
        newest_first: bool = False,
        limit: int | None = None,
        skip: int = 0,
    ) -> Iterator[Recorded]:
        """Stream events by position, a page in memory at a time. The database is held open for reading until
        the stream ends or is dropped.

        Args:
            run_id: Of one run; None for all.
            rounds: From the first to the last of them.
            types: Stored tags.
            cause_id: Only events about this cause.
            causation_id: Only what follows from this event.
            after: Only later positions.
            until: The last position.
            newest_first: The other way round.
            limit: Maximum number of events.
            skip: Number of selected events to skip.

        Raises:
            DamagedError: A column has another type than was written.
        """
        bounds = [EVENT.c.position > after]
        if until is not None:
            bounds.append(EVENT.c.position <= until)
        if run_id is not None:
            bounds.append(EVENT.c.run_id == run_id)
        chosen: list[Any] = []
        if rounds is not None:
            chosen.append(_of_rounds(*rounds))
        if types is not None:
            chosen.append(EVENT.c.type.in_(list(types)))
        if cause_id is not None:
            chosen.append(EVENT.c.cause_id == cause_id)
        if causation_id is not None:
            chosen.append(EVENT.c.causation_id == causation_id)
        # Within a run sequence and position rise together, and the index on run and sequence gives its order;
        # asked for by position, SQLite would sort the run.
        key = EVENT.c.position if run_id is None else EVENT.c.sequence

        def first(query: Select[Any], order: ColumnElement[int]) -> Select[Any]:
            ordered = query.order_by(order.desc() if newest_first else order)
            return ordered.limit(limit).offset(skip or None)

        query = first(select(*COLUMNS).where(*bounds), key)
        if chosen:
            # Positions first, from an index that holds them. Asked at once for the events in order, SQLite
            # walks the whole run: it cannot know how few are chosen. Nor can PostgreSQL, which for a few
            # would walk the positions of every later run, were it not for a sum that no index is ordered by.
            places = select(EVENT.c.position).where(*bounds, *chosen)
            if newest_first and limit == 1 and not skip:  # found without sorting them
                places = select(func.max(EVENT.c.position)).where(*bounds, *chosen)
            elif limit is not None or skip:
                places = first(places, EVENT.c.position + 0)
            key = _FOUND.c.position
            query = select(_FOUND).where(key.in_(places)).order_by(key.desc() if newest_first else key)
        few = limit is not None and limit <= PAGE  # and need no cursor, which takes PostgreSQL three messages
        with self.database.read() as connection:
            found = connection.execute(query, execution_options={} if few else {"yield_per": PAGE})
            for page in found.partitions(PAGE):
                for row in page:
                    yield recorded(row)

    def facts(self, run_id: str, *, after: int = 0, until: int | None = None) -> Iterator[Fact[Event]]:
        """Stream a run for the fold: sequences in (after, until]."""
        with self.database.read() as connection:
            pages = self._facts.stream(connection, run_id, after, 2**62 if until is None else until)
            yield from facts(chain.from_iterable(pages))

    def chosen(
        self,
        run_id: str,
        types: Sequence[type[E]],
        rounds: tuple[int, int] | None = None,
        *,
        cause_id: str | None = None,
        until: int | None = None,
    ) -> Iterator[Fact[E]]:
        """Stream the events of these types, in order; selected as in `read`, which has the rows."""
        names = [event.__name__ for event in types]
        chosen = [EVENT.c.run_id == run_id, EVENT.c.type.in_(names)]
        if rounds is not None:
            chosen.append(_of_rounds(*rounds))
        if cause_id is not None:
            chosen.append(EVENT.c.cause_id == cause_id)
        if until is not None:
            chosen.append(EVENT.c.position <= until)
        if cause_id is not None:  # its index is in the order of positions
            query = select(*(EVENT.c[name] for name in FACT)).where(*chosen).order_by(EVENT.c.position)
        else:
            places = select(EVENT.c.position).where(*chosen)
            query = select(*(_FOUND.c[name] for name in FACT)).where(_FOUND.c.position.in_(places))
            query = query.order_by(_FOUND.c.position)
        with self.database.read() as connection:
            found = connection.execute(query, execution_options={"yield_per": PAGE})
            for page in found.partitions():
                try:  # SQLite keeps whatever is put into its file
                    rows = msgspec.convert(list(map(tuple, page)), list[FactRow])
                except msgspec.ValidationError as error:
                    for _ in self.read(run_id, types=names, rounds=rounds):
                        pass  # names the event and the column
                    raise DamagedError(f"an event of run {run_id} is damaged: {error}") from error
                yield from cast("Iterator[Fact[E]]", facts(rows))

    def known(self, run_id: str, ids: Iterable[str]) -> dict[str, Recorded]:
        """Those events that the run has."""
        wanted, found = list(ids), dict[str, Recorded]()
        with self.database.read() as connection:
            for start in range(0, len(wanted), 500):
                some = EVENT.c.event_id.in_(wanted[start : start + 500])
                query = select(*COLUMNS).where(EVENT.c.run_id == run_id, some)
                found |= {row.event_id: recorded(row) for row in connection.execute(query)}
        return found

    def by_ids(self, run_id: str, ids: Collection[str]) -> dict[str, Recorded]:
        """These events of a run. Raises NotFoundError if one is missing."""
        found = self.known(run_id, ids)
        if missing := next((one for one in ids if one not in found), None):
            raise NotFoundError(f"run {run_id} has no event {missing}")
        return found

    def by_id(self, run_id: str, event_id: str) -> Recorded:
        """One event of a run. Raises NotFoundError."""
        return self.by_ids(run_id, [event_id])[event_id]

    def hash_of(self, run_id: str, sequence: int) -> str | None:
        """The chain's hash after this many events of a run; None if it has fewer."""
        query = select(EVENT.c.hash).where(EVENT.c.run_id == run_id, EVENT.c.sequence == sequence)
        with self.database.read() as connection:
            return connection.execute(query).scalar_one_or_none()

    def last_position(self) -> int:
        """The last position given in the database."""
        with self.database.read() as connection:
            given = connection.execute(select(LOG.c.position).where(LOG.c.id == ONE)).scalar_one_or_none()
        if not isinstance(given, int):
            raise DamagedError(f"the last position given is damaged: {given!r}")
        return given

    def count(self, run_id: str, type_: str | None = None) -> int:
        """Number of a run's events, or of one type, counted in the table."""
        with self.database.read() as connection:
            query = select(func.count()).select_from(EVENT).where(EVENT.c.run_id == run_id)
            if type_ is not None:
                query = query.where(EVENT.c.type == type_)
            return connection.execute(query).scalar_one()


def _of_rounds(first: int, last: int) -> ColumnElement[bool]:
    """A single round is matched by equality, for which the index on type and round is used."""
    return EVENT.c.round == first if first == last else EVENT.c.round.between(first, last)


def _chained(
    run_id: str, head: Head, last: int, events: Sequence[Pending], recorded_at: str
) -> list[tuple[Any, ...]]:
    """The rows to insert, in column order, each linked to the one before it."""
    previous = head.hash
    rows: list[tuple[Any, ...]] = []
    for offset, e in enumerate(events, 1):
        own = (
            head.sequence + offset,
            e.round,
            e.type,
            e.schema_version,
            e.cause_id,
            e.payload,
            e.causation_id,
            recorded_at,
            previous,
        )
        previous = chain_hash(e.event_id, *own)
        rows.append((last + offset, e.event_id, run_id, *own, previous))
    return rows
