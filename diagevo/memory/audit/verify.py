"""Is the log what was written? The hash chain, the invariants, replay against projection; names the first
bad event.

Three passes, each streaming: the chain (every row's hash, its predecessor's, sequences and positions), the
heads kept outside the database, and the fold from the first event, which makes each consequence and each
candidate's counts, label and verdict again; ingested groups are held against what was made of them.
`deep` also compares every text that an event names with its digest.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from diagevo.errors import DamagedError, DiagEvoError, NotFoundError
from diagevo.memory.audit.groups import first_stranger
from diagevo.memory.audit.verification import Fault, Verification
from diagevo.memory.events import GroupIngested, RoundCommitted, RoundOpened, RoundsSuperseded
from diagevo.memory.events.records import GENESIS, Recorded
from diagevo.memory.log import heads, heads_check
from diagevo.memory.log.check import triggers
from diagevo.memory.log.log import EVENT, Log
from diagevo.memory.state import projection
from diagevo.memory.state.model import MemoryState, OpenRound
from diagevo.memory.state.projection import CAUSE, GROUP, HISTORY, NODE, OPENED, QUESTION, ROUND, SNAPSHOT
from diagevo.memory.state.superseded import played_again
from diagevo.memory.state.walk import walk


def verify(
    log: Log, run_id: str, folder: Path, *, deep: bool = False, copy: Path | None = None
) -> Verification:
    """Check one run as it is at one moment: it may be written to meanwhile. `folder` is the run's own, which
    holds the chain heads; `copy` a file of heads that was kept elsewhere. Raises NotFoundError for no such
    run, ConfigError for a copy without a head."""
    # Heads are written after their commits: those that are there now are in the view that begins next.
    own = heads_check.Comparison(heads.read(folder / heads.NAME))
    copied = None if copy is None else heads_check.Comparison(heads_check.copy_of(copy))
    report = Verification(run_id)
    with log.database.view():
        if run_id not in log.runs():
            raise NotFoundError(f"there is no run {run_id}", hint="see the runs: diagevo runs list")
        _check_chain(log, run_id, [own] if copied is None else [own, copied], report)
        _check_positions(log, report)
        _check_triggers(log, report)
        if any(fault.check == "chain" for fault in report.faults):
            report.notes.append("not replayed: these are not the events that were written")
        else:
            _check_replay(log, run_id, report)
        if deep:
            from diagevo.memory.audit.verify_stored import check_stored  # numpy, for this alone

            check_stored(log, run_id, report)
    report.heads = own.compared
    report.notes += heads_check.notes_of_own(own)
    if copied is not None:
        report.copied = copied.compared
        report.notes += heads_check.notes_of_copy(copied)
    return report


def _check_chain(log: Log, run_id: str, kept: Sequence[heads_check.Comparison], report: Verification) -> None:
    previous, sequence, position = GENESIS, 0, 0
    fault = None
    try:
        for record in log.read(run_id):
            report.events += 1
            if fault is None:
                fault = _chain_fault(record, previous, sequence, position)
            previous, sequence, position = record.hash, record.sequence, record.position
            for comparison in kept:
                for message in comparison.meet(record):
                    report.faults.append(Fault("head", message, record.position, record.event_id))
        head = log.head(run_id)
    except (DamagedError, DBAPIError):
        report.faults.insert(0, fault or _unreadable(log, run_id, position))
        report.notes.append("not read to its end: an event is damaged")
        return
    if fault is not None:
        report.faults.insert(0, fault)
    if fault is None and (head.sequence, head.hash) != (sequence, previous):
        message = (
            f"the run's head is event {head.sequence}, its last one is {sequence}: the log's end is missing"
        )
        report.faults.append(Fault("chain", message, position))
    report.faults.extend(Fault("head", message) for comparison in kept for message in comparison.rest())
    report.head = previous


def _chain_fault(record: Recorded, previous: str, sequence: int, position: int) -> Fault | None:
    def fault(message: str) -> Fault:
        return Fault("chain", message, record.position, record.event_id)

    if record.sequence != sequence + 1:
        missing, found = sequence + 1, record.sequence
        return fault(f"event {missing} of the run is missing: #{record.position} is event {found}")
    if record.position <= position:
        return fault(f"#{record.position} follows #{position}")
    if record.hash != record.computed_hash:
        return fault(f"the bytes of #{record.position} {record.type} are not those that were written")
    if record.previous_hash != previous:
        return fault(f"#{record.position} {record.type} does not follow the event before it")
    return None


def _unreadable(log: Log, run_id: str, after: int) -> Fault:
    """The first row after a position that cannot be read: a page of rows fails as one."""
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


def _check_triggers(log: Log, report: Verification) -> None:
    with log.database.read() as connection:
        found = triggers(connection, log.database.dialect)
    if not found.ok:
        report.faults.append(Fault("triggers", found.detail))


def _check_positions(log: Log, report: Verification) -> None:
    """Positions of the whole database: 1 to n."""
    with log.database.read() as connection:
        count, last = connection.execute(select(func.count(), func.max(EVENT.c.position))).one()
    try:
        given = log.last_position()
    except DamagedError as error:
        report.faults.append(Fault("positions", error.message))
        return
    if count != given or (last or 0) != given:
        report.faults.append(
            Fault("positions", f"{given} positions were given, {count} events are there, last at {last or 0}")
        )


def _check_replay(log: Log, run_id: str, report: Verification) -> None:
    """Fold from the first event; compare each commit's projections with the rows."""
    state = MemoryState(run_id)
    causes: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    opened: list[dict[str, Any]] = []
    groups = Groups()
    try:
        for fact, before, state, closed in walk(log, run_id, lambda state, _: state.open):
            match fact.event:
                case GroupIngested() as group:
                    groups.add(projection.group_row(run_id, fact.position, fact.round, group))
                case RoundOpened():
                    opened.append(projection.opened_row(state, fact.round, fact.position))
                case RoundCommitted():
                    assert closed is not None
                    report.rounds += 1
                    row = projection.round_row(state, closed, "")
                    del row["committed_at"]
                    _compare(log, report, ROUND, [row], "round", round=state.round)
                    rows = projection.history_rows(state)
                    _compare(log, report, HISTORY, rows, "cause_id", round=state.round)
                    _check_questions(log, report, closed)
                    _check_snapshot(log, report, state)
                    causes, nodes = projection.cause_rows(state), projection.node_rows(state)
                case RoundsSuperseded():
                    again = played_again(state.superseded)
                    for row in opened[fact.event.first - 1 :]:
                        if row["superseded_by"] is None:
                            row |= {"superseded_by": again[row["round"]], "superseded_at": fact.position}
                    if before is not None:
                        _check_questions(log, report, before)
                    causes, nodes = projection.cause_rows(state), projection.node_rows(state)
                case _:
                    pass
    except DiagEvoError as error:
        report.faults.append(Fault("replay", error.message, *_named(log, run_id, state.sequence + 1)))
        return
    if (stranger := first_stranger(log, state)) is not None:
        report.faults.append(Fault("replay", f"#{stranger[0]}: {stranger[1]}", stranger[0]))
    if state.open is not None:
        _check_questions(log, report, state.open)
    _compare(log, report, OPENED, opened, "round")
    groups.check(log, report)
    if report.rounds:
        _compare(log, report, CAUSE, causes, "cause_id")
        _compare(log, report, NODE, nodes, "node_id")
    _check_rounds(log, report, state.last_opened)


def _check_questions(log: Log, report: Verification, now: OpenRound) -> None:
    rows = projection.question_rows(report.run_id, now)
    _compare(log, report, QUESTION, rows, "question_id", "cause_id", round=now.number)


class Groups:
    """Ingested groups as the events give them, a sum a step: a run has too many to hold them."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], int] = {}
        self._attempt = 1

    def add(self, row: dict[str, Any]) -> None:
        attempt, step = row["attempt"], row["step"]
        if attempt > self._attempt:
            self._attempt = attempt
            for key in [key for key in self._sums if key[0] < attempt and key[1] >= step]:
                del self._sums[key]
        self._sums[attempt, step] = self._sums.get((attempt, step), 0) + hash(tuple(row.values()))

    def check(self, log: Log, report: Verification) -> None:
        stored = Groups()
        query = select(GROUP).where(GROUP.c.run_id == report.run_id).order_by(GROUP.c.position)
        with log.database.read() as connection:
            for row in connection.execute(query, execution_options={"yield_per": 1000}).mappings():
                key = row["attempt"], row["step"]
                stored._sums[key] = stored._sums.get(key, 0) + hash(tuple(row.values()))
        wrong = [
            key
            for key in self._sums.keys() | stored._sums.keys()
            if self._sums.get(key) != stored._sums.get(key)
        ]
        if wrong:
            attempt, step = min(wrong)
            message = f"ingested_group is not what the events give in step {step} of attempt {attempt}"
            report.faults.append(Fault("projection", f"{message}; {REBUILD}"))


def _check_rounds(log: Log, report: Verification, last: int) -> None:
    """No row is of a round that was never committed."""
    for target in (ROUND, HISTORY, SNAPSHOT, QUESTION):
        query = select(target.c.round).where(
            target.c.run_id == report.run_id, ~target.c.round.between(1, last)
        )
        with log.database.read() as connection:
            round_ = connection.execute(query.limit(1)).scalar()
        if round_ is not None:
            message = f"{target.name} has round {round_}, which follows from no event; {REBUILD}"
            report.faults.append(Fault("projection", message))


REBUILD = "run: diagevo memory rebuild"


def _named(log: Log, run_id: str, sequence: int) -> tuple[int | None, str | None]:
    query = select(EVENT.c.position, EVENT.c.event_id).where(
        EVENT.c.run_id == run_id, EVENT.c.sequence == sequence
    )
    with log.database.read() as connection:
        row = connection.execute(query).one_or_none()
    return (None, None) if row is None else (row.position, row.event_id)


def _compare(
    log: Log, report: Verification, target: Any, expected: Sequence[dict[str, Any]], *key: str, **only: Any
) -> None:
    """Rows of a projection against those that the events give. The first difference of a table is named."""
    for message in islice(projection.wrong_rows(log, report.run_id, target, expected, *key, **only), 1):
        report.faults.append(Fault("projection", f"{message}; {REBUILD}"))


def _check_snapshot(log: Log, report: Verification, state: MemoryState) -> None:
    """A missing snapshot costs time only; one that differs is a fault."""
    query = select(SNAPSHOT).where(
        SNAPSHOT.c.run_id == state.run_id,
        SNAPSHOT.c.round == state.round,
        SNAPSHOT.c.version == projection.VERSION,
    )
    try:
        with log.database.read() as connection:
            found = connection.execute(query).mappings().one_or_none()
        stored = None if found is None else dict(found)
    except DBAPIError:
        stored = {}
    if stored is not None and stored != projection.snapshot_row(state):
        message = f"the snapshot of round {state.round} is not the state; {REBUILD}"
        report.faults.append(Fault("projection", message))
