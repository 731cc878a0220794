"""Is the log what was written? The hash chain, the invariants, replay against projection; names the first
bad event.

One pass, streaming: the chain (every row's hash, its predecessor's, sequences and positions), the heads kept
outside the database, each payload against its canonical form, and the fold from the first event, which
recomputes each consequence and each candidate's counts, label and verdict; ingested groups are compared with
what was made from them.
`deep` also compares every text that an event names with its digest.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Table, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateTable

from diagevo.errors import DamagedError, DiagEvoError, NotFoundError
from diagevo.memory.audit.assigned_failures import first_misassigned
from diagevo.memory.audit.ingested_groups import first_mismatch
from diagevo.memory.audit.verification import Fault, Verification
from diagevo.memory.events import RoundCommitted
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import UNFIT, Chain, Recorded
from diagevo.memory.log import heads
from diagevo.memory.log.check import differences, positions
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.tables import EVENT, ROUND, RUN, SNAPSHOT
from diagevo.memory.state import projection
from diagevo.memory.state.fold import advance
from diagevo.memory.state.model import MemoryState
from diagevo.memory.state.projector import PROJECTED, Projector
from diagevo.text.numbers import count

LATE = timedelta(minutes=1)
"""Maximum delay from a commit's event to its projection: as long as a writer waits for another."""
REBUILD = "run: diagevo memory rebuild"


def verify(
    log: Log, run_id: str, folder: Path, *, deep: bool = False, copy: Path | None = None
) -> Verification:
    """Check one run as of one moment: it may be written to meanwhile. `folder` is the run's folder, which
    holds the chain heads; `copy` is a file of heads kept elsewhere. Raises NotFoundError if there is no such
    run, ConfigError for a copy without a head."""
    # Heads are written after their commits: those that are there now are in the view that begins next.
    own = heads.Comparison(heads.read(folder / heads.NAME))
    copied = None if copy is None else heads.Comparison(heads.copy_of(copy))
    report = Verification(run_id)
    with log.database.view(), ExitStack() as held:
        if run_id not in log.runs():
            raise NotFoundError(f"there is no run {run_id}", hint="see the runs: diagevo runs list")
        kept = [own] if copied is None else [own, copied]
        replay = _Replay(log, run_id, held.enter_context(_made()))
        _check_chain(log, kept, replay, report)
        entry = log.entry(run_id)
        report.faults.extend(Fault("head", message) for one in kept for message in one.of_run(entry))
        _check_database(log, report)
        if any(fault.check == "chain" for fault in report.faults):
            report.notes.append("not replayed: these are not the events that were written")
        else:
            replay.end(report)
        if deep:
            from diagevo.memory.audit.verify_stored import check_stored  # numpy, for this alone

            check_stored(log, run_id, report)
    report.heads = own.compared
    report.notes += heads.notes_of_own(own)
    if copied is not None:
        report.copied = copied.compared
        report.notes += heads.notes_of_copy(copied)
    return report


def _check_chain(log: Log, kept: Sequence[heads.Comparison], replay: "_Replay", report: Verification) -> None:
    chain, position = Chain(), 0
    fault = None
    try:
        for record in log.read(report.run_id):
            report.events += 1
            if fault is None:
                fault = _chain_fault(chain, record, position)
            if fault is None:
                replay.take(chain, record)
            position, report.head = record.position, record.hash
            for comparison in kept:
                for message in comparison.meet(record):
                    report.faults.append(Fault("head", message, record.position, record.event_id))
        head = log.head(report.run_id)
        report.notes.extend(_misdated(chain))
    except (DamagedError, DBAPIError):
        report.faults.insert(0, fault or _unreadable(log, report.run_id, position))
        report.notes.append("not read to its end: an event is damaged")
        return
    if fault is not None:
        report.faults.insert(0, fault)
    elif (head.sequence, head.hash) != (chain.sequence, chain.hash):
        ends = f"the run's head is event {head.sequence}, its last one is {chain.sequence}"
        report.faults.append(Fault("chain", f"{ends}: the log's end is missing", position))
    report.faults.extend(Fault("head", message) for comparison in kept for message in comparison.rest())


def _misdated(chain: Chain) -> Iterator[str]:
    """A wrong clock is not a fault: order is by position."""
    if (first := chain.first_misdated) is not None:
        when = first.recorded_at[:19].replace("T", " ")
        more = f", and of {count(chain.misdated - 1, 'later event')}" if chain.misdated > 1 else ""
        yield f"a clock was wrong: the time of #{first.position} is {when} UTC{more}; order is by position"


def _chain_fault(chain: Chain, record: Recorded, position: int) -> Fault | None:
    try:
        chain.follows(record)
    except ValueError as error:
        return Fault("chain", str(error), record.position, record.event_id)
    if record.position <= position:
        return Fault("chain", f"#{record.position} follows #{position}", record.position, record.event_id)
    return None


def _unreadable(log: Log, run_id: str, after: int) -> Fault:
    """The first unreadable row after a position: a page of rows fails as a whole."""
    query = select(EVENT.c.position).where(EVENT.c.run_id == run_id, EVENT.c.position > after)
    with log.database.read() as connection:
        places = connection.execute(query.order_by(EVENT.c.position)).scalars().all()
    for place in places:
        try:
            list(log.read(run_id, after=place - 1, until=place))
        except DamagedError as error:
            return Fault("chain", error.message, place)
        except DBAPIError as error:
            return Fault("chain", f"#{place} is damaged: {error.orig}", place)
    return Fault("chain", f"the head of run {run_id} is damaged")


def _check_database(log: Log, report: Verification) -> None:
    """Checks that concern all runs of the database."""
    with log.database.read() as connection:
        if not (found := positions(connection)).ok:
            report.faults.append(Fault(found.check, found.detail))
        for message in differences(connection, log.database.dialect):
            report.faults.append(Fault("schema", message))
        runs = select(RUN.c.run_id)
        for target in projection.ALL:  # the views would show them
            stray = select(target.c.run_id).where(target.c.run_id.not_in(runs)).limit(1)
            if (name := connection.execute(stray).scalar()) is not None:
                report.faults.append(
                    Fault("projection", f"{target.name} has rows of {name}, which is no run")
                )


@contextmanager
def _made() -> Generator[Database]:
    """A temporary database with only projections, in one transaction."""
    with (
        TemporaryDirectory(prefix="diagevo-") as folder,
        closing(Database(str(Path(folder, "made.db")))) as database,
        database.write() as connection,
    ):
        for target in projection.ALL:
            connection.execute(CreateTable(target))
        yield database


class _Replay:
    """The fold from the first event, and in `made` the projections that a rebuild would write. It ends at the
    first event that does not follow."""

    def __init__(self, log: Log, run_id: str, made: Database) -> None:
        self.log, self.state, self.made = log, MemoryState(run_id), made
        self._projector = Projector(made, run_id)
        self._rounds = 0
        self._times: dict[int, str] = {}
        """When each commit is recorded."""
        self._fault: Fault | None = None

    def take(self, chain: Chain, record: Recorded) -> None:
        """The next event, which follows in the chain."""
        if self._fault is not None:
            return
        before = self.state.open
        try:
            event = chain.read(record)
            fact = Fact(record.type, record.round, record.event_id, record.sequence, record.position, event)
            advance(self.state, fact)
        except UNFIT as error:
            message = error.message if isinstance(error, DiagEvoError) else str(error)
            self._fault = Fault("replay", message, record.position, record.event_id)
            return
        if record.type == RoundCommitted.__name__:
            self._rounds += 1
            self._times[record.round] = record.recorded_at
        if record.type in PROJECTED:
            self._projector.take(fact, self.state, before, record.recorded_at)

    def end(self, report: Verification) -> None:
        """What was found, including what only the whole history shows."""
        report.rounds = self._rounds
        if self._fault is not None:
            report.faults.append(self._fault)
            return
        misassigned = first_misassigned(self.log, self.state.run_id) if self.state.assignments else None
        if (mismatch := first_mismatch(self.log, self.state) or misassigned) is not None:
            report.faults.append(Fault("replay", f"#{mismatch[0]}: {mismatch[1]}", mismatch[0]))
        self._projector.flush()
        wrong = [next(self._wrong_rows(target), None) for target in projection.ALL if target is not SNAPSHOT]
        for message in (*wrong, *self._wrong_snapshots()):
            if message is not None:
                report.faults.append(Fault("projection", f"{message}; {REBUILD}"))

    def _wrong_rows(self, target: Table) -> Iterator[str]:
        names = [column.name for column in target.c]
        stored, expected = (
            projection.rows(database, target, self.state.run_id, names)
            for database in (self.log.database, self.made)
        )
        if target is ROUND:
            stored = (self._as_recorded(names, row) for row in stored)
        return projection.wrong_rows(target, names, stored, expected)

    def _as_recorded(self, names: Sequence[str], row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row of `round_summary`, with the time of its commit where it says one shortly after: versions up
        to 0.1 looked at the clock again when they wrote it."""
        place = names.index("committed_at")
        at, recorded = row[place], self._times.get(row[names.index("round")], "")
        try:
            read = datetime.fromisoformat(at)
            near = timedelta(0) <= read - datetime.fromisoformat(recorded) < LATE
        except (TypeError, ValueError):
            return row
        exact = read.isoformat(timespec="microseconds") == at
        return (*row[:place], recorded, *row[place + 1 :]) if near and exact else row

    def _wrong_snapshots(self) -> Iterator[str]:
        """A missing snapshot costs time only; one that is read as another state is a fault. One that was
        written before the state had a field more says the same in fewer bytes."""
        names = [column.name for column in SNAPSHOT.c]
        now = {"version": projection.VERSION}
        try:
            for stored in projection.rows(self.log.database, SNAPSHOT, self.state.run_id, names, **now):
                number, content = stored[1], stored[-1]
                made = projection.rows(self.made, SNAPSHOT, self.state.run_id, names, round=number)
                expected = next(made, None)
                if expected is None:
                    yield f"snapshot {number} follows from no event"
                elif expected not in (stored, (*stored[:-1], projection.reread(content))):
                    yield f"the snapshot of round {number} is not the state"
        except DBAPIError as error:
            yield f"a snapshot cannot be read: {error.orig}"
