"""Recorded events of one run written into a new one: for a fork, and for an import.

Ids, positions, sequences and hashes belong to a run and are given anew; what an event says, when it was
recorded and how events follow from each other stay. Every event is folded on the way, so that a history
that does not hold is refused whole, and each commit's projections are written again. All of it is one
transaction.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, select, update

from diagevo.errors import ConfigError, ConflictError, InconsistentError
from diagevo.memory.events import Event
from diagevo.memory.events.decode import Fact, decoded
from diagevo.memory.events.records import GENESIS, Recorded, event_id, pending
from diagevo.memory.log import heads
from diagevo.memory.log.log import EVENT, LOG, RUN, Bundle, Log, mark, now
from diagevo.memory.log.statements import INSERT
from diagevo.memory.state import projection
from diagevo.memory.state.fold import advance
from diagevo.memory.state.model import MemoryState

BATCH = 2000
_canonical = msgspec.json.Encoder(order="sorted")


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: the new run's head, and the chain heads of its commits and its end."""

    run_id: str
    events: int
    round: int
    position: int
    hash: str
    heads: tuple[heads.ChainHead, ...]


class Transcript:
    """Writes a new run within a transaction that the caller holds (`Database.write`)."""

    def __init__(self, connection: Connection, log: Log, run_id: str) -> None:
        """Raises ConfigError where the run exists."""
        log.lock(connection)
        if log.head(run_id, connection).sequence:
            raise ConfigError(f"run {run_id} exists already", hint="give the new run another name")
        self.connection, self.log, self.run_id = connection, log, run_id
        self.state = MemoryState(run_id)
        self.position = log.last_position()
        self.hash = GENESIS
        self.heads: list[heads.ChainHead] = []
        self._end: heads.ChainHead | None = None
        self._rows: list[dict[str, Any]] = []
        self._ids: dict[str, str] = {}
        """New ids of the round under way, and of every promotion: later events may name those."""
        self._promotions: dict[str, str] = {}

    def copy(self, source: Iterable[Recorded]) -> None:
        """Write events of another run, in their order."""
        for recorded in source:
            new_id = event_id(self.run_id, recorded.round, recorded.type, recorded.event.key())
            payload = recorded.payload
            if recorded.type in ("CauseReactivated", "RoundsSuperseded"):
                payload = self._renamed(payload)
            causation = None if recorded.causation_id is None else self._new_id(recorded.causation_id)
            self._ids[recorded.event_id] = new_id
            if recorded.type == "CausePromoted":
                self._promotions[recorded.event_id] = new_id
            self._write(
                Recorded(
                    position=0,
                    event_id=new_id,
                    run_id=self.run_id,
                    sequence=0,
                    round=recorded.round,
                    type=recorded.type,
                    schema_version=recorded.schema_version,
                    cause_id=recorded.cause_id,
                    payload=payload,
                    causation_id=causation,
                    recorded_at=recorded.recorded_at,
                    previous_hash="",
                    hash="",
                )
            )
            if recorded.type in ("RoundCommitted", "RoundsSuperseded"):
                self._ids.clear()

    def append(self, event: Event, round: int) -> None:
        """Write an event of the new run's own."""
        p = pending(self.run_id, round, event)
        self._write(
            Recorded(
                position=0,
                event_id=p.event_id,
                run_id=self.run_id,
                sequence=0,
                round=round,
                type=p.type,
                schema_version=p.schema_version,
                cause_id=p.cause_id,
                payload=p.payload,
                causation_id=None,
                recorded_at=now(),
                previous_hash="",
                hash="",
            )
        )

    def _new_id(self, old: str) -> str:
        new = self._ids.get(old) or self._promotions.get(old)
        if new is None:
            raise InconsistentError(f"event {old}, which a later event follows from, is not in its round")
        return new

    def _renamed(self, payload: str) -> str:
        values = msgspec.json.decode(payload)
        for naming in values.get("causes", [values]):
            if naming["promotion"] is not None:
                naming["promotion"] = self._new_id(naming["promotion"])
        return _canonical.encode(values).decode()

    def _write(self, r: Recorded) -> None:
        self.position += 1
        sequence = self.state.sequence + 1
        moved = msgspec.structs.replace(
            r, position=self.position, run_id=self.run_id, sequence=sequence, previous_hash=self.hash
        )
        row = msgspec.structs.asdict(moved)
        row["hash"] = self.hash = hash_ = moved.computed_hash
        self._rows.append(row)
        if len(self._rows) >= BATCH:
            self._flush()
        closed = self.state.open
        event = decoded(r.type, r.schema_version, r.payload)
        advance(self.state, Fact(r.type, r.round, r.event_id, sequence, self.position, event))
        self._end = heads.ChainHead(r.round, sequence, self.position, hash_)
        if r.type == "RoundCommitted" and closed is not None:
            projection.write(self.connection, self.state, closed, r.recorded_at)
            self.heads.append(self._end)
        elif r.type == "RoundsSuperseded":
            projection.write_memory(self.connection, self.state)

    def _flush(self) -> None:
        if self._rows:
            self.connection.execute(INSERT, self._rows)
            self._rows.clear()

    def finish(self, imported: Bundle | None = None) -> Written:
        """Move the heads. After the transaction, `keep_heads` puts them outside the database.

        `imported` is the bundle, where the events came from outside.
        """
        self._flush()
        self.connection.execute(update(LOG).where(LOG.c.id == 1).values(position=self.position))
        head = {"sequence": self.state.sequence, "hash": self.hash} | mark(imported)
        moved = update(RUN).where(RUN.c.run_id == self.run_id).values(head)
        if self.connection.execute(moved).rowcount == 0:
            self.log.create_run(self.connection, self.run_id, self.state.sequence, self.hash, imported)
        if self._end is not None and self._end not in self.heads[-1:]:
            self.heads.append(self._end)
        return Written(
            self.run_id, self.state.sequence, self.state.round, self.position, self.hash, tuple(self.heads)
        )

    def refuse_other_heads(self, folder: Path) -> None:
        """Raises ConflictError where the new run's folder has chain heads that are not its own: `memory
        verify` would hold it against them."""
        kept = heads.read(folder / heads.NAME)
        for number, head in kept.lines:
            place = select(EVENT.c.hash).where(
                EVENT.c.run_id == self.run_id, EVENT.c.sequence == head.sequence
            )
            if self.connection.execute(place).scalar_one_or_none() != head.hash:
                raise ConflictError(
                    f"line {number} of {kept.file} is the chain head of another run, or of another history"
                    f" of {self.run_id}",
                    hint="give the new run another name, or move that file aside",
                )


def keep_heads(folder: Path, written: Written) -> None:
    """The chain heads of a new run, in its folder, but for those that are there."""
    there = {head.sequence for head in heads.read(folder / heads.NAME).heads}
    for head in written.heads:
        if head.sequence not in there:
            heads.append(folder, head)
