"""A read-only run, as its log records it: where every audit starts.

Long, but one file: it is one class, whose properties share what was read from the log once.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from sqlalchemy import func, select

from diagevo.errors import ConfigError, NotFoundError, StoreError
from diagevo.memory.events import (
    EVENT_TYPES,
    Artifact,
    Event,
    FailureObserved,
    GroupIngested,
    RoundCommitted,
    RoundOpened,
    RoundsSuperseded,
    RunConfigured,
    StageAbandoned,
    StageCompleted,
    Trait,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import Recorded, event_id
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.log.database import Database
from diagevo.memory.log.location import shown
from diagevo.memory.log.log import LATEST, Log
from diagevo.memory.log.migrate import prepare
from diagevo.memory.log.tables import EVENT, RUN
from diagevo.memory.places import runs_folder
from diagevo.memory.state.model import MemoryState, played_again
from diagevo.memory.state.projection import load
from diagevo.memory.state.stored_config import Configured, configured, read_today
from diagevo.progress import WARM_START
from diagevo.text.escaping import shortened

E = TypeVar("E", bound=Event)

PROMPTS = 50
"""Number of first groups whose prompts determine the common beginning."""


@dataclass(frozen=True, slots=True)
class AsOf:
    """A point of a run's history: everything up to and including `position`."""

    round: int
    """The last round committed by then; 0 before the first commit."""
    position: int
    sequence: int


class VoidedAttempts:
    """Which training observations were voided, as in the fold: giving up an attempt voids what it
    and every attempt before it observed past the last step that counts."""

    def __init__(self) -> None:
        self._given_up: dict[tuple[int, str], list[tuple[int, int]]] = {}

    def add(self, round: int, event: StageAbandoned) -> None:
        self._given_up.setdefault((round, event.stage), []).append((event.attempt, event.after_step))

    def void(self, round: int, failure: FailureObserved) -> bool:
        """Whether the observation no longer counts."""
        given_up = self._given_up.get((round, failure.stage), ())
        return any(failure.step > after_step for later, after_step in given_up if later >= failure.attempt)


@dataclass(frozen=True)
class Configuration:
    """A recorded configuration."""

    position: int
    sequence: int
    event: RunConfigured

    @cached_property
    def read(self) -> Configured:
        return configured(self.event.config)


class History:
    """One run of one database. Reads only; opened with `open_history`."""

    def __init__(self, database: Database, run_id: str, root: Path | None = None) -> None:
        self.database = database
        self.log = Log(database)
        self.run_id = run_id
        self.root = runs_folder(database, root)
        self._folded = (0, True, MemoryState(run_id))

    def close(self) -> None:
        self.database.close()

    @property
    def folder(self) -> Path:
        """The run's folder: chain heads, vector index, and whatever the run itself keeps there."""
        return self.root / self.run_id

    @cached_property
    def every_commit(self) -> tuple[Fact[RoundCommitted], ...]:
        """The commits of all rounds, in order, including superseded ones."""
        return tuple(self.events(RoundCommitted))

    @cached_property
    def commits(self) -> tuple[Fact[RoundCommitted], ...]:
        """The commits of rounds that count, in order."""
        return tuple(self.counted())

    def counted(self, as_of: AsOf | None = None) -> list[Fact[RoundCommitted]]:
        """The rounds that were committed by then, or are now, and counted then."""
        gone = self.superseded(as_of)
        return [
            commit
            for commit in self.every_commit
            if commit.round not in gone and (as_of is None or commit.position <= as_of.position)
        ]

    @cached_property
    def supersedings(self) -> tuple[Fact[RoundsSuperseded], ...]:
        """The points where rounds were superseded, in order."""
        return tuple(self.events(RoundsSuperseded))

    def superseded(self, as_of: AsOf | None = None) -> dict[int, int]:
        """For each superseded round, then or now, the round that repeats its groups."""
        return played_again(
            [
                (fact.event.first, fact.event.last)
                for fact in self.supersedings
                if as_of is None or fact.position <= as_of.position
            ]
        )

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """Every configuration, in order: one, and one more for each fork and change of the embedder."""
        return tuple(
            Configuration(f.position, f.sequence, read_today(f.event, self.run_id))
            for f in self.events(RunConfigured)
        )

    @cached_property
    def end(self) -> AsOf:
        """Where the history ends now; later events stay unseen by this object."""
        last = next(self.log.read(self.run_id, newest_first=True, limit=1), None)
        if last is None:
            raise NotFoundError(f"run {self.run_id} has no events", hint="see the runs: diagevo runs list")
        return AsOf(self.round_by(last.position), last.position, last.sequence)

    @property
    def settled(self) -> AsOf:
        """The point of the next round's schedule: after the last commit or superseding, and later
        configurations."""
        number = self.round_by(self.end.position)
        closed = next((fact for fact in self.supersedings if fact.event.last == number), None)
        if closed is None:
            return self.after(number)
        return self._configured(AsOf(number, closed.position, closed.sequence), self._opened(number + 1))

    def round_by(self, position: int) -> int:
        """The last round that was committed or superseded by then."""
        commits = (fact.round for fact in self.every_commit if fact.position <= position)
        return max([0, *commits, *(f.event.last for f in self.supersedings if f.position <= position)])

    @cached_property
    def abandoned(self) -> "VoidedAttempts":
        """The abandoned attempts."""
        found = VoidedAttempts()
        for fact in self.events(StageAbandoned):
            found.add(fact.round, fact.event)
        return found

    def as_of(self, round: int | None = None, at: int | None = None) -> AsOf:
        """A point of the history: after the commit of `round`, at position `at`, or now.

        Args:
            round: A committed round; configurations between it and the next one are included.
            at: A position of the log.

        Raises:
            NotFoundError: The round is not committed, the run begins after `at`, or the log ends before it.
            ConfigError: Both are given.
        """
        if round is not None and at is not None:
            raise ConfigError("a round and a position were given", hint="name one of them: --round or --at")
        if round is not None:
            return self.after(round)
        if at is None:
            return self.end
        written = self.log.last_position()
        if at > written:
            raise NotFoundError(
                f"position {at} is not written yet", hint=f"the log ends at position {written}"
            )
        last = next(self.log.read(self.run_id, until=at, newest_first=True, limit=1), None)
        if last is None:
            raise NotFoundError(
                f"run {self.run_id} has no event up to position {at}", hint="list them: diagevo memory log"
            )
        return AsOf(self.round_by(at), at, last.sequence)

    def commit(self, round: int) -> Fact[RoundCommitted]:
        """The commit of a round.

        Raises:
            NotFoundError: It is not committed; the message says which rounds are.
        """
        for commit in self.every_commit:
            if commit.round == round:
                return commit
        last = self.every_commit[-1].round if self.every_commit else 0
        if round in (again := self.superseded()):
            raise NotFoundError(
                f"round {round} of run {self.run_id} was superseded while it was open",
                hint=f"its groups are those of round {again[round]}",
            )
        known = f"rounds 1 to {last} are" if last > 1 else "round 1 is" if last else "no round is"
        raise NotFoundError(f"round {round} of run {self.run_id} is not committed", hint=f"{known} committed")

    def after(self, round: int) -> AsOf:
        """After the commit of a round, and after the configurations that followed it before the next round
        was opened: a fork's next round is drawn with the fork's settings. 0: before the first round."""
        superseded = (fact for fact in self.supersedings if fact.event.last == round)
        before = next(superseded, None) or self._opened(round + 1)
        if round == 0:
            return self.end if before is None else AsOf(0, before.position - 1, before.sequence - 1)
        return self._configured(point_of(self.commit(round)), before)

    def _opened(self, round: int) -> Fact[RoundOpened] | None:
        return self.find(RoundOpened, round, "")

    @cached_property
    def _tail(self) -> tuple[Fact[Event], ...]:
        """Events after a commit that belong to it and change the memory."""
        kinds = [
            event for event in EVENT_TYPES.values() if event.traits & Trait.TAIL and event.traits & Trait.STEP
        ]
        return tuple(self.events(Event, *kinds))

    def _configured(self, point: AsOf, before: Fact[Event] | None) -> AsOf:
        """The point, after the configurations that followed it."""
        anew = [
            c
            for c in sorted([*self.configurations, *self._tail], key=lambda one: one.position)
            if c.position > point.position and (before is None or c.position < before.position)
        ]
        return AsOf(point.round, anew[-1].position, anew[-1].sequence) if anew else point

    def state(self, as_of: AsOf, *, snapshots: bool = True) -> MemoryState:
        """The memory at that point, read-only. The last one requested is cached.

        Args:
            as_of: A point of this history.
            snapshots: Whether to start at the last snapshot; otherwise it is folded from the first
                event, and nothing else is read.
        """
        if (as_of.sequence, snapshots) != self._folded[:2]:
            state = load(self.log, self.run_id, sequence=as_of.sequence, snapshots=snapshots)
            self._folded = (as_of.sequence, snapshots, state)
        return self._folded[2]

    def configuration(self, as_of: AsOf | None = None) -> RunConfigured:
        """The configuration in force at that point, or now.

        Raises:
            StoreError: The run was never configured.
        """
        found = self._configuration(None if as_of is None else as_of.position)
        if found is None:
            raise StoreError(
                f"run {self.run_id} was never configured", hint="its writer calls memory.configure first"
            )
        return found.event

    @cached_property
    def _last_group(self) -> GroupIngested | None:
        last = next(self.log.read(self.run_id, types=["GroupIngested"], newest_first=True, limit=1), None)
        return None if last is None else expect(last, GroupIngested)

    @property
    def ingested(self) -> str | None:
        """The last source of ingested rollouts; None for a run without any."""
        return None if self._last_group is None else self._last_group.source

    @cached_property
    def head(self) -> str:
        """The common beginning of ingested prompts, such as examples: lists leave it out."""
        if self._last_group is None:
            return ""
        read = self.log.read(self.run_id, types=["GroupIngested"], limit=PROMPTS)
        from diagevo.text.steps import common_head

        prompts = set(self.texts([expect(each, GroupIngested).question for each in read]).values())
        return next(iter(prompts), "")[: common_head(prompts)]

    @cached_property
    def evaluation(self) -> bool:
        """Whether all ingested groups share one step, so there is no curriculum: an evaluation."""
        last = self._last_group
        if last is None or last.draw is not None:
            return False
        first = next(self.log.read(self.run_id, types=["GroupIngested"], limit=1))
        return expect(first, GroupIngested).step == last.step

    @property
    def steered(self) -> bool:
        """Whether this memory draws that trainer's prompts."""
        return self._last_group is not None and self._last_group.draw is not None

    @property
    def world(self) -> str | None:
        """The world of its questions; None for open mathematics and for ingested prompts."""
        return None if self.ingested is not None else self.in_force().config.get("world")

    def in_force(self, position: int | None = None) -> Configured:
        """The parsed configuration in force at a position, or now. A round uses the configuration in force
        when it is opened. The paper's values if nothing is configured."""
        found = self._configuration(position)
        return configured({}) if found is None else found.read

    def _configuration(self, position: int | None) -> Configuration | None:
        by_then = (c for c in reversed(self.configurations) if position is None or c.position <= position)
        return next(by_then, None)

    def events(
        self,
        first: type[E],
        *more: type[E],
        as_of: AsOf | None = None,
        round: int | None = None,
        cause_id: str | None = None,
    ) -> Iterator[Fact[E]]:
        """The events of these types up to a point, streamed in order. `log.read` has the rows."""
        return self.log.chosen(
            self.run_id,
            (first, *more),
            None if round is None else (round, round),
            cause_id=cause_id,
            until=None if as_of is None else as_of.position,
        )

    def find(self, event: type[E], round: int, key: str, as_of: AsOf | None = None) -> Fact[E] | None:
        """The event with a business key, found by its id.

        Args:
            event: Its type.
            round: Its round.
            key: What `Event.key` gives.
            as_of: Only up to this point.

        Returns:
            None if it was not recorded by then.
        """
        wanted = event_id(round, event.__name__, key)
        found = self.log.known(self.run_id, [wanted]).get(wanted)
        if found is None or (as_of is not None and found.position > as_of.position):
            return None
        return fact_of(found, event)

    def policies(self, roles: Collection[str], round: int) -> list[tuple[int, Artifact]]:
        """What a role, or the roles of one model, played with up to the end of a round: folders below the
        run's, with the round that left each. The last is its policy then; where there is none, the model that
        it starts from."""
        return [
            (fact.round, artifact)
            for fact in self.events(StageCompleted)
            if (event := fact.event).stage == WARM_START or (event.stage in roles and fact.round <= round)
            for artifact in event.artifacts[-1:]
        ]

    def chains(self, ends: Sequence[Fact[Event]]) -> list[list[Recorded]]:
        """Each event and what it follows from, back to the first cause: a walk along `causation_id`, side by
        side: one query per step, not one per event."""
        rows = self.log.by_ids(self.run_id, [last.event_id for last in ends])
        links = [[rows[last.event_id]] for last in ends]
        while waiting := {one for of in links if (one := of[-1].causation_id) is not None}:
            found = self.log.by_ids(self.run_id, waiting)
            for of in links:
                if (one := of[-1].causation_id) is not None:
                    of.append(found[one])
        return links

    def text(self, digest: str | None) -> str | None:
        """The artifact with this digest; None if there is none or it was not kept."""
        return None if digest is None else self.texts([digest]).get(digest)

    def texts(self, digests: Sequence[str]) -> dict[str, str]:
        """Those artifacts that were kept."""
        return Artifacts(self.database).kept(digests)


def point_of(fact: Fact[RoundCommitted]) -> AsOf:
    """Right after a commit."""
    return AsOf(fact.round, fact.position, fact.sequence)


def expect(recorded: Recorded, event: type[E]) -> E:
    """The event of a row, which must have that type."""
    found = recorded.event
    assert isinstance(found, event)
    return found


def fact_of(recorded: Recorded, event: type[E]) -> Fact[E]:
    """The content of a row, which must have that type."""
    expected = expect(recorded, event)
    return Fact(
        recorded.type, recorded.round, recorded.event_id, recorded.sequence, recorded.position, expected
    )


def open_history(location: str, run: str | None = None, *, root: Path | None = None) -> History:
    """Open a run for reading.

    Args:
        location: A SQLAlchemy URL or the path of an SQLite file.
        run: Its name; None or "latest" means the most recently written run.
        root: The folder of the runs.

    Raises:
        StoreError: The database is missing, old or new.
        NotFoundError: It has no such run.
    """
    database = Database(location)
    prepare(database, create=False)
    try:
        return History(database, resolve_run(database, run), root)
    except BaseException:
        database.close()
        raise


def run_names(database: Database) -> list[str]:
    """The runs, most recently written first."""
    with database.read() as connection:
        ends = (RUN.c.run_id == EVENT.c.run_id) & (RUN.c.sequence == EVENT.c.sequence)
        # A run whose last event is gone still exists: report its damage, not its absence.
        known = select(RUN.c.run_id).select_from(RUN.outerjoin(EVENT, ends)).where(RUN.c.sequence > 0)
        return list(connection.execute(known.order_by(func.coalesce(EVENT.c.position, 0).desc())).scalars())


def resolve_run(database: Database, run: str | None) -> str:
    """The run's id. Raises NotFoundError, which lists the existing runs, ConfigError for an empty name."""
    if run == "":
        raise ConfigError("the run's name is empty", hint="name it, or leave it out for the latest")
    known = run_names(database)
    if not known:
        raise NotFoundError(f"{shown(database.url)} has no runs yet", hint="start one: diagevo train")
    if run in (None, LATEST):
        return known[0]
    if run in known:
        return run
    near = get_close_matches(str(run)[:200], known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"runs: {_listed(sorted(known))}"
    raise NotFoundError(f"there is no run {shortened(run)}", hint=hint)


def _listed(names: Sequence[str], most: int = 8) -> str:
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more: diagevo runs list" if left > 0 else "")
