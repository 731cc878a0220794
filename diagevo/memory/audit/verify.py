"""Is the log what was written? The hash chain, the invariants, replay against projection; names the first
bad event.

One pass, streaming: the chain (every row's hash, its predecessor's, sequences and positions), the heads kept
outside the database, each payload against what would be written of it, and the fold from the first event,
which makes each consequence and each candidate's counts, label and verdict again; ingested groups are held
against what was made of them.
`deep` also compares every text that an event names with its digest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from diagevo.errors import DamagedError, DiagEvoError, NotFoundError
from diagevo.memory.audit.groups import first_mismatch
from diagevo.memory.events import Event, GroupIngested, RoundCommitted, RoundOpened, RoundsSuperseded, Trait
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import GENESIS, UNFIT, Chain, Recorded
from diagevo.memory.log import heads
from diagevo.memory.log.check import triggers
from diagevo.memory.log.log import Log
from diagevo.memory.log.tables import EVENT
from diagevo.memory.state import projection
from diagevo.memory.state.fold import advance
from diagevo.memory.state.model import MemoryState, OpenRound, played_again
from diagevo.memory.state.projection import (
    CAUSE,
    GROUP,
    HISTORY,
    NODE,
    OPENED,
    PROMPT,
    QUESTION,
    ROUND,
    SNAPSHOT,
    SUM,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it was written. `position` and `event_id` name the first bad event, if it is
    one."""

    check: str
    message: str
    position: int | None = None
    event_id: str | None = None


@dataclass(slots=True)
class Verification:
    """What was checked and what was found. `notes` say what could not be checked."""

    run_id: str
    events: int = 0
    rounds: int = 0
    heads: int = 0
    copied: int = 0
    """Heads of the copy that was given."""
    texts: int = 0
    head: str = GENESIS
    faults: list[Fault] = field(default_factory=list[Fault])
    notes: list[str] = field(default_factory=list[str])

    @property
    def ok(self) -> bool:
        return not self.faults


REBUILD = "run: diagevo memory rebuild"


def verify(
    log: Log, run_id: str, folder: Path, *, deep: bool = False, copy: Path | None = None
) -> Verification:
    """Check one run as it is at one moment: it may be written to meanwhile. `folder` is the run's own, which
    holds the chain heads; `copy` a file of heads that was kept elsewhere. Raises NotFoundError for no such
    run, ConfigError for a copy without a head."""
    # Heads are written after their commits: those that are there now are in the view that begins next.
    own = heads.Comparison(heads.read(folder / heads.NAME))
    copied = None if copy is None else heads.Comparison(heads.copy_of(copy))
    report = Verification(run_id)
    with log.database.view():
        if run_id not in log.runs():
            raise NotFoundError(f"there is no run {run_id}", hint="see the runs: diagevo runs list")
        replay = _Replay(log, run_id)
        _check_chain(log, [own] if copied is None else [own, copied], replay, report)
        _check_positions(log, report)
        _check_triggers(log, report)
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


def _chain_fault(chain: Chain, record: Recorded, position: int) -> Fault | None:
    try:
        chain.follows(record)
    except ValueError as error:
        return Fault("chain", str(error), record.position, record.event_id)
    if record.position <= position:
        return Fault("chain", f"#{record.position} follows #{position}", record.position, record.event_id)
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


class _Replay:
    """The fold from the first event, and the projections that it gives beside the rows. It ends at the first
    event that does not follow."""

    def __init__(self, log: Log, run_id: str) -> None:
        self.log, self.state = log, MemoryState(run_id)
        self.rounds = 0
        self.faults: list[Fault] = []
        self._ended = False
        self._opened: list[dict[str, Any]] = []
        self._groups = _Groups()

    def take(self, chain: Chain, record: Recorded) -> None:
        """The next event, which follows in the chain."""
        if self._ended:
            return
        before = self.state.open
        try:
            event = chain.read(record)
            fact = Fact(record.type, record.round, record.event_id, record.sequence, record.position, event)
            advance(self.state, fact)
        except UNFIT as error:
            self._ended = True
            message = error.message if isinstance(error, DiagEvoError) else str(error)
            self.faults.append(Fault("replay", message, record.position, record.event_id))
        else:
            self._project(fact, before)

    def _project(self, fact: Fact[Event], before: OpenRound | None) -> None:
        state = self.state
        match fact.event:
            case GroupIngested() as group:
                self._groups.add(projection.group_row(state.run_id, fact.position, fact.round, group))
            case RoundOpened():
                self._opened.append(projection.opened_row(state, fact.round, fact.position))
            case RoundCommitted():
                assert before is not None
                self.rounds += 1
                row = projection.round_row(state, before, "")
                del row["committed_at"]
                self._compare(ROUND, [row], "round", round=state.round)
                rows = projection.history_rows(state, before)
                self._compare(HISTORY, rows, "cause_id", round=state.round)
                self._check_questions(before)
                self._check_snapshot()
            case RoundsSuperseded(first=first):
                again = played_again(state.superseded)
                for row in self._opened[first - 1 :]:
                    if row["superseded_by"] is None:
                        row |= {"superseded_by": again[row["round"]], "superseded_at": fact.position}
                if before is not None:
                    self._check_questions(before)
            case _:
                pass
        if fact.event.traits & Trait.STANDING:
            self._causes, self._nodes = projection.cause_rows(state), projection.node_rows(state)

    def end(self, report: Verification) -> None:
        """What was found, and what only the whole history says."""
        report.rounds = self.rounds
        report.faults += self.faults
        if self._ended:
            return
        self.faults = report.faults
        if (mismatch := first_mismatch(self.log, self.state)) is not None:
            self.faults.append(Fault("replay", f"#{mismatch[0]}: {mismatch[1]}", mismatch[0]))
        if self.state.open is not None:
            self._check_questions(self.state.open)
        self._compare(OPENED, self._opened, "round")
        self._groups.check(self.log, report)
        self._check_sums()
        self._check_prompts()
        if self.rounds:
            self._compare(CAUSE, self._causes, "cause_id")
            self._compare(NODE, self._nodes, "node_id")
        self._check_rounds()

    def _check_sums(self) -> None:
        """Each step and tag against its groups."""
        groups = select(GROUP).where(GROUP.c.run_id == self.state.run_id)
        with self.log.database.read() as connection:
            found = connection.execute(groups, execution_options={"yield_per": 1000})
            rows = projection.sum_rows(found.mappings())
        self._compare(SUM, rows, "batch", "step", "tag")

    def _check_prompts(self) -> None:
        """Each prompt against its groups."""
        groups = select(GROUP).where(GROUP.c.run_id == self.state.run_id).order_by(GROUP.c.position)
        same = (OPENED.c.run_id == QUESTION.c.run_id) & (OPENED.c.round == QUESTION.c.round)
        failures = (
            select(QUESTION.c.question, func.sum(QUESTION.c.failures))
            .select_from(QUESTION.join(OPENED, same))
            .where(QUESTION.c.run_id == self.state.run_id, OPENED.c.superseded_by.is_(None))
            .group_by(QUESTION.c.question)
        )
        steps: dict[str, dict[int, tuple[int, int, int]]] = {}
        first: dict[str, int] = {}
        with self.log.database.read() as connection:
            for row in connection.execute(groups, execution_options={"yield_per": 1000}):
                of = steps.setdefault(row.question, {})
                first.setdefault(row.question, row.position)
                rollouts, passes, unanswered = of.get(row.step, (0, 0, 0))
                unanswered += 0 if row.passes else row.rollouts
                of[row.step] = rollouts + row.rollouts, passes + row.passes, unanswered
            explained = {row[0]: row[1] for row in connection.execute(failures)}
        rows = [
            {
                "run_id": self.state.run_id,
                "question": question,
                "position": first[question],
                "steps": len(of),
                **dict(
                    zip(
                        ("rollouts", "passes", "unanswered"),
                        map(sum, zip(*of.values(), strict=True)),
                        strict=True,
                    )
                ),
                "first_step": min(of),
                "first_rollouts": of[min(of)][0],
                "first_passes": of[min(of)][1],
                "last_step": max(of),
                "last_rollouts": of[max(of)][0],
                "last_passes": of[max(of)][1],
                "explained": explained.get(question, 0),
            }
            for question, of in steps.items()
        ]
        self._compare(PROMPT, rows, "question")

    def _check_rounds(self) -> None:
        """No row is of a round that was never committed."""
        for target in (ROUND, HISTORY, SNAPSHOT, QUESTION):
            query = select(target.c.round).where(
                target.c.run_id == self.state.run_id, ~target.c.round.between(1, self.state.last_opened)
            )
            with self.log.database.read() as connection:
                round_ = connection.execute(query.limit(1)).scalar()
            if round_ is not None:
                message = f"{target.name} has round {round_}, which follows from no event; {REBUILD}"
                self.faults.append(Fault("projection", message))

    def _compare(self, target: Any, expected: Sequence[dict[str, Any]], *key: str, **only: Any) -> None:
        """Rows of a projection against those that the events give. The first difference of a table is
        named."""
        wrong = projection.wrong_rows(self.log, self.state.run_id, target, expected, *key, **only)
        self.faults.extend(Fault("projection", f"{message}; {REBUILD}") for message in islice(wrong, 1))

    def _check_questions(self, now: OpenRound) -> None:
        rows = projection.question_rows(self.state.run_id, now)
        self._compare(QUESTION, rows, "question_id", "cause_id", round=now.number)

    def _check_snapshot(self) -> None:
        """A missing snapshot costs time only; one that is read as another state is a fault. One that was
        written before the state had a field more says the same in fewer bytes."""
        state = self.state
        query = select(SNAPSHOT).where(
            SNAPSHOT.c.run_id == state.run_id,
            SNAPSHOT.c.round == state.round,
            SNAPSHOT.c.version == projection.VERSION,
        )
        try:
            with self.log.database.read() as connection:
                found = connection.execute(query).mappings().one_or_none()
            stored = None if found is None else dict(found)
        except DBAPIError:
            stored = {}
        if stored is None:
            return
        row = projection.snapshot_row(state)
        if stored != row and {**stored, "state": projection.reread(stored.get("state"))} != row:
            message = f"the snapshot of round {state.round} is not the state; {REBUILD}"
            self.faults.append(Fault("projection", message))


class _Groups:
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
        stored = _Groups()
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
