"""Writes a history into a new run: for a fork, and for an import.

An event keeps its id, its place in the run and its hash; the run's name and the position are new. So a copy
ends in the same head, and a fork shares its beginning with its parent. Every event goes through the same
checks as an append: it is decoded strictly, linked to the one before, and folded, so that an invalid history
is refused as a whole. Each commit's projections are rewritten. All of it is one transaction.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, update
from sqlalchemy.exc import IntegrityError

from diagevo.errors import ConfigError, ConflictError, StoreError
from diagevo.memory.events import Event
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import UNFIT, Chain, Recorded, pending
from diagevo.memory.log import heads
from diagevo.memory.log.heads import Comparison
from diagevo.memory.log.log import Log, now
from diagevo.memory.log.statements import INSERT
from diagevo.memory.log.tables import LOG, RUN
from diagevo.memory.state.fold import advance
from diagevo.memory.state.model import MemoryState
from diagevo.memory.state.projector import PROJECTED, Projector

BATCH = 2000


@dataclass(frozen=True, slots=True)
class CopiedRun:
    """What was written: the new run's head, and the chain heads of its commits and its end."""

    run_id: str
    events: int
    round: int
    position: int
    hash: str
    heads: tuple[heads.ChainHead, ...]


class HistoryReader:
    """Reads an external history: each event is checked against the one before it, then folded."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.state = MemoryState(run_id)
        self.chain = Chain()
        self.heads: list[heads.ChainHead] = []
        self._end: heads.ChainHead | None = None

    def take(
        self,
        source: Iterable[Recorded],
        called: str,
        hint: str,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Take events of another run, in their order. Raises StoreError at the first that is not what was
        written, InconsistentError where it does not follow; `called`: their source, for messages."""
        for recorded in source:
            try:
                self.chain.follows(recorded)
                event = self.chain.read(recorded)
            except UNFIT as error:
                where, why = f"event {self.state.sequence + 1} of {called}", str(error).splitlines()[0]
                raise StoreError(f"{where} is not what was written: {why}", hint=hint) from error
            self._add(recorded, event)
            on_event(event)

    def _add(self, recorded: Recorded, event: Event) -> Fact[Event]:
        r = recorded
        fact = Fact(r.type, r.round, r.event_id, r.sequence, r.position, event)
        advance(self.state, fact)
        self._end = heads.of(r)
        if r.type == "RoundCommitted":
            self.heads.append(self._end)
        return fact

    def taken(self) -> CopiedRun:
        """All of it; the position is its last event's."""
        if self._end is not None and self._end not in self.heads[-1:]:
            self.heads.append(self._end)
        state = self.state
        return CopiedRun(
            self.run_id, state.sequence, state.round, state.position, self.chain.hash, tuple(self.heads)
        )


class Copy(HistoryReader):
    """Writes a new run within the caller's transaction (`Database.write`)."""

    def __init__(self, connection: Connection, log: Log, run_id: str, folder: Path) -> None:
        """`folder`: the new run's. Raises ConfigError if the run exists."""
        super().__init__(run_id)
        log.lock(connection)
        if log.head(run_id).sequence:
            raise ConfigError(
                f"run {run_id} exists already", hint="give the new run another name: --name NAME"
            )
        self.connection, self.log = connection, log
        self._projector = Projector(log.database, run_id)
        self.position = log.last_position()
        self._kept = Comparison(heads.read(folder / heads.NAME))
        self._rows: list[dict[str, Any]] = []

    def take(
        self,
        source: Iterable[Recorded],
        called: str,
        hint: str,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Write events of another run, as `HistoryReader` takes them."""
        try:
            super().take(source, called, hint, on_event)
            self._flush()
        except IntegrityError as error:
            raise twice(called, hint) from error

    def append(self, event: Event, round: int) -> None:
        """Write an event of the new run's own."""
        given = msgspec.structs.asdict(pending(self.run_id, round, event))
        own = Recorded(
            position=0,
            run_id=self.run_id,
            sequence=self.state.sequence + 1,
            recorded_at=now(),
            previous_hash=self.chain.hash,
            hash="",
            **given,
        )
        recorded = msgspec.structs.replace(own, hash=own.computed_hash)
        self.chain.follows(recorded)
        self._add(recorded, event)

    def _add(self, recorded: Recorded, event: Event) -> Fact[Event]:
        self.position += 1
        r = msgspec.structs.replace(recorded, position=self.position, run_id=self.run_id)
        for message in self._kept.meet(r):
            raise _other_history(self.run_id, message)
        self._rows.append(msgspec.structs.asdict(r))
        if len(self._rows) >= BATCH:
            self._flush()
        before = self.state.open
        fact = super()._add(r, event)
        if r.type in PROJECTED:
            self._projector.take(fact, self.state, before, r.recorded_at)
        return fact

    def _flush(self) -> None:
        if self._rows:
            self.connection.execute(INSERT, self._rows)
            self._rows.clear()
        self._projector.flush()

    def finish(self, imported: str | None = None) -> CopiedRun:
        """Move the heads. After the transaction, `keep_heads` puts them outside the database. Raises
        ConflictError if the run's folder has chain heads of another history.

        `imported`: the imported head, if any.
        """
        self._flush()
        for message in self._kept.rest():
            raise _other_history(self.run_id, message)
        self.connection.execute(update(LOG).where(LOG.c.id == 1).values(position=self.position))
        head = {"sequence": self.state.sequence, "hash": self.chain.hash, "imported": imported}
        moved = update(RUN).where(RUN.c.run_id == self.run_id).values(head)
        if self.connection.execute(moved).rowcount == 0:
            self.log.create_run(self.connection, self.run_id, self.state.sequence, self.chain.hash, imported)
        written = self.taken()
        *before, last = written.heads
        last = msgspec.structs.replace(last, run=self.log.entry(self.run_id))
        return replace(written, heads=(*before, last))


def twice(called: str, hint: str) -> StoreError:
    """The error about a history with a repeated event."""
    return StoreError(f"an event of {called} is there twice", hint=hint)


def _other_history(run_id: str, message: str) -> ConflictError:
    return ConflictError(
        f"the folder of {run_id} has chain heads of another history: {message}",
        hint="give the new run another name, or move that file aside",
    )


def keep_heads(folder: Path, written: CopiedRun) -> None:
    """The chain heads of a new run, in its folder, but for those that are there; the last one says how the
    run came into the database."""
    there = {head.sequence for head in heads.read(folder / heads.NAME).heads}
    for head in written.heads:
        if head.sequence not in there or head.run is not None:
            heads.append(folder, head)
