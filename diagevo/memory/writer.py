"""One run's writer: its lock, the transaction, and the state, which moves together with the log. If a
transaction fails, the state is refolded from the log. One writer per run (`writer_lock.py`), which takes the
lock with its first write, so that reading needs none. Thread-safe.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diagevo.errors import ConfigError, InconsistentError, OutOfOrderError
from diagevo.memory.events import Event
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.named_texts import digests_of, named_texts
from diagevo.memory.events.records import Pending, UnstorableText, event_id, storable_event, wrapped
from diagevo.memory.log import heads
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.writer_lock import Lock, acquire
from diagevo.memory.state import projection
from diagevo.memory.state.fold import advance
from diagevo.memory.state.model import MemoryState, OpenRound
from diagevo.memory.state.projector import PROJECTED, Projector


@dataclass(frozen=True, slots=True)
class Item:
    """An event to append, with its causing event and its round (None: the open one)."""

    event: Event
    cause: str | None = None
    round: int | None = None


class RunWriter:
    """Appends to a run and folds what it appends. Events go in within `atomic()`."""

    def __init__(self, database: Database, run_id: str, root: Path) -> None:
        self.run_id = run_id
        self.root = root
        self.database = database
        self.log = Log(database)
        self.artifacts = Artifacts(database)
        self.state: MemoryState = projection.load(self.log, run_id)
        self.lock = threading.RLock()
        self._held: Lock | None = None
        self._depth = 0
        self._dirty = False
        self._broken: Exception | None = None
        self._unkept = False
        """Whether this writer appended something after the last head that it saved outside the database."""
        self.after: list[Callable[[], None]] = []
        """What is left to do after the transaction."""

    @property
    def folder(self) -> Path:
        """The run's folder: chain heads, vector index, and whatever the run itself keeps there."""
        return self.root / self.run_id

    def claim(self) -> None:
        """Become the run's writer now. Raises HeldError, naming the holder, if somebody else is.

        A lock lost with its connection is taken again. If somebody wrote in between, the next append is
        refused: the state is not reloaded under a caller whose decision relied on it.
        """
        with self.lock:
            if self._held is not None and self._held.is_held():
                return
            lost, self._held = self._held, acquire(self.database, self.run_id, self.folder)
            if lost is not None:
                lost.release()
                return
            self._reload_if_behind()
            if not self.state.sequence:
                heads.refuse_another(self.run_id, self.folder)

    @contextmanager
    def atomic(self) -> Generator[None]:
        """Several verbs in one transaction: all or nothing, including the state."""
        with self.lock:
            if self._depth:
                yield
                return
            self.claim()
            self._depth, self._dirty, self._broken, self.after = 1, False, None, []
            unkept = self._unkept
            try:
                with self.database.write():
                    yield
                    if self._broken is not None:
                        raise self._broken
            except BaseException:
                self._depth, self._unkept = 0, unkept
                if self._dirty:
                    self._reload()
                raise
            self._depth = 0
            for action in self.after:
                action()

    def append(self, items: Sequence[Item]) -> list[bool]:
        """Append, fold and project; whether each event was new. Within `atomic()`."""
        both = [self._wrapped(item) for item in items]
        self._refuse_unstored([event for event, _ in both])
        done = self.log.append(self.run_id, self.state.sequence, [p for _, p in both])
        self._dirty = True
        sequence = self.state.sequence
        projector = Projector(self.database, self.run_id)
        for (event, p), position, fresh in zip(both, done.positions, done.fresh, strict=True):
            if not fresh:
                continue
            sequence += 1
            self._unkept = True
            fact, before = Fact(p.type, p.round, p.event_id, sequence, position, event), self.state.open
            try:
                advance(self.state, fact)
            except InconsistentError as error:
                refused = error.message.partition(": ")[2]
                self._broken = OutOfOrderError(f"{p.type} {event.key()} refused: {refused}".strip())
                raise self._broken from error
            if p.type in PROJECTED:
                projector.take(fact, self.state, before, done.recorded_at)
        projector.flush()
        return done.fresh

    def _refuse_unstored(self, events: Sequence[Event]) -> None:
        """Raises ConfigError for a text that was not stored: no reader could ever show it."""
        named = dict.fromkeys(digest for event in events for digest in digests_of(event))
        if unstored := self.artifacts.unstored(list(named)):
            fields = ((event, *field) for event in events for field in named_texts(event))
            event, where, digest = next(field for field in fields if field[2] == unstored[0])
            raise ConfigError(
                f"{type(event).__name__} {event.key()}: {where} is {digest}, of which no text is stored",
                hint="memory.artifacts.put(TEXT) stores a text and returns its digest",
            )

    def _wrapped(self, item: Item) -> tuple[Event, Pending]:
        """An event and its envelope.

        A model's text must not stop a round: the fold sees the text as stored.
        """
        open_round = self.state.open.number if self.state.open else self.state.round
        round = open_round if item.round is None else item.round
        try:
            return wrapped(self.run_id, round, item.event, item.cause)
        except UnstorableText:
            return wrapped(self.run_id, round, storable_event(item.event), item.cause)

    def _reload(self) -> None:
        self.state = projection.load(self.log, self.run_id)

    def _reload_if_behind(self) -> None:
        if self.log.head(self.run_id).sequence != self.state.sequence:
            self._reload()

    def id_of(self, type_: str, key: str, round: int | None = None) -> str:
        """The id that such an event has in `round` (None: the open one)."""
        return event_id(self.opened().number if round is None else round, type_, key)

    def opened(self) -> OpenRound:
        """The open round. Raises OutOfOrderError if there is none."""
        if self.state.open is None:
            raise OutOfOrderError(
                f"run {self.run_id}: no round is open", hint=f"open_round({self.state.round + 1}) comes next"
            )
        return self.state.open

    def keep_head(self) -> None:
        """Save the current chain head outside the database after the transaction. Within `atomic()`."""
        line, self._unkept = self._head(), False
        self.after.append(lambda: heads.append(self.folder, line))

    def _head(self) -> heads.ChainHead:
        [last] = self.log.read(self.run_id, newest_first=True, limit=1)
        return heads.of(last, self.log.entry(self.run_id))

    def close(self) -> None:
        """Save the chain's head, release the lock and close the connections."""
        with self.lock:
            try:
                if self._unkept and (head := self._head()).sequence == self.state.sequence:
                    heads.append(self.folder, head)
            finally:
                if self._held is not None:
                    self._held.release()
                    self._held = None
                self.database.close()
