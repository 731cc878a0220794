"""Projections and snapshots: written with the events that they follow from, read for speed, disposable. Also
how a state is loaded."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, get_args

import msgspec
from sqlalchemy import Column, Connection, Table, Text, delete, insert, select
from sqlalchemy.exc import DBAPIError
from sqlmodel import SQLModel

from diagevo.config.former import in_todays_names
from diagevo.memory.events import (
    CandidateVerdict,
    Event,
    FailureAssigned,
    FailureUnassigned,
    GroupIngested,
    number_of,
)
from diagevo.memory.events.decode import UNREADABLE, Fact
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.prepared import PAGE
from diagevo.memory.log.tables import (
    CAUSE,
    GROUP,
    HISTORY,
    MOVED,
    NODE,
    OPENED,
    PROMPT,
    QUESTION,
    ROUND,
    SNAPSHOT,
    SUM,
    CauseCounts,
    CauseQuestionRow,
    CauseRow,
    CauseStanding,
    IngestedGroupRow,
    RoundCounts,
    RoundSummaryRow,
    SnapshotRow,
)
from diagevo.memory.state.fold import fold
from diagevo.memory.state.model import MemoryState, OpenRound
from diagevo.memory.state.stored_config import unread
from diagevo.text.fractions import fraction

ALL = (CAUSE, NODE, ROUND, HISTORY, SNAPSHOT, OPENED, GROUP, SUM, PROMPT, QUESTION, MOVED)
SUMS = ("groups", "all_passed", "contrast", "all_failed", "rollouts", "passes")
VERDICTS: tuple[CandidateVerdict, ...] = get_args(CandidateVerdict)
VERSION = 9
"""Of the snapshot's form and of the fold: a snapshot of another version is ignored."""


def _exact(kind: type, value: str) -> Fraction:
    return fraction(value)


# Sorted, so that equal states are equal bytes whoever wrote the configuration.
_encode = msgspec.json.Encoder(enc_hook=str, order="deterministic").encode
_decode = msgspec.json.Decoder(MemoryState, dec_hook=_exact).decode


def to_bytes(state: MemoryState) -> bytes:
    """A state as bytes."""
    return _encode(state)


def from_bytes(content: bytes) -> MemoryState:
    """The state of `to_bytes`. Raises UNREADABLE if the bytes are not a state."""
    state = _decode(content)
    if state.config is not None:
        state.config = in_todays_names(state.config)
    state.causes = dict(sorted(state.causes.items(), key=lambda item: item[1].number))
    state.nodes = dict(sorted(state.nodes.items(), key=lambda item: item[1].number))
    return state


def load(
    log: Log, run_id: str, *, round: int | None = None, sequence: int | None = None, snapshots: bool = True
) -> MemoryState:
    """The fold of a run: as of its last event, as of the commit of `round`, or after event `sequence`.

    With `snapshots` it starts from the nearest one; without, from the first event. `state.round` tells the
    caller whether the commit of `round` exists.
    """
    state = None
    if snapshots:
        state = _snapshot(log, run_id, round, sequence)
    if state is None:
        state = MemoryState(run_id)
    if round is not None and state.round == round:
        return state
    facts = log.facts(run_id, after=state.sequence, until=sequence)
    return fold(state, facts if round is None else _until_commit(facts, round))


def _until_commit(facts: Iterable[Fact[Event]], round: int) -> Iterator[Fact[Event]]:
    for fact in facts:
        yield fact
        if fact.type == "RoundCommitted" and fact.round == round:
            return


def _snapshot(log: Log, run_id: str, round: int | None, sequence: int | None) -> MemoryState | None:
    query = select(SNAPSHOT.c.state, SNAPSHOT.c.state_hash).where(
        SNAPSHOT.c.run_id == run_id, SNAPSHOT.c.version == VERSION
    )
    if round is not None:
        query = query.where(SNAPSHOT.c.round <= round)
    if sequence is not None:
        query = query.where(SNAPSHOT.c.sequence <= sequence)
    with log.database.read() as connection:
        row = connection.execute(query.order_by(SNAPSHOT.c.round.desc()).limit(1)).one_or_none()
    if row is None:
        return None
    try:
        state = from_bytes(row.state)
    except UNREADABLE:
        return None  # disposable: the events contain everything
    if unread(state.config or {}):
        return None  # the fold says which run it is
    return state if state.hash(state.reference_round, state.reference_failures) == row.state_hash else None


def write(connection: Connection, state: MemoryState, closed: OpenRound, committed_at: str) -> None:
    """Projection rows and snapshot of a commit that `state` has just made; `closed` is its round."""
    write_memory(connection, state)
    for projection in (HISTORY, ROUND, SNAPSHOT):
        connection.execute(
            delete(projection).where(projection.c.run_id == state.run_id, projection.c.round == closed.number)
        )
    for target, rows in (
        (HISTORY, history_rows(state, closed)),
        (ROUND, [round_row(state, closed, committed_at)]),
        (SNAPSHOT, [snapshot_row(state)]),
    ):
        if rows:
            connection.execute(insert(target), rows)


def write_memory(connection: Connection, state: MemoryState) -> None:
    """The causes and nodes as they are now, after a commit or a superseding."""
    for target, rows in ((CAUSE, cause_rows(state)), (NODE, node_rows(state))):
        connection.execute(delete(target).where(target.c.run_id == state.run_id))
        if rows:
            connection.execute(insert(target), rows)


def rows(
    database: Database, target: Table, run_id: str, names: Sequence[str], **only: Any
) -> Iterator[tuple[Any, ...]]:
    """Rows of a projection, in key order on every database. `only` selects among them."""
    order = [column.collate("C") if _sorts(database, column) else column for column in target.primary_key]
    query = select(*(target.c[name] for name in names)).where(
        target.c.run_id == run_id, *(target.c[k] == v for k, v in only.items())
    )
    with database.read() as connection:
        found = connection.execute(query.order_by(*order), execution_options={"yield_per": PAGE})
        yield from map(tuple, found)


def _sorts(database: Database, column: Column[Any]) -> bool:
    """Whether the database would sort the column by its locale."""
    return database.dialect == "postgresql" and isinstance(column.type, Text)


def wrong_rows(
    target: Table,
    names: Sequence[str],
    stored: Iterable[tuple[Any, ...]],
    expected: Iterable[tuple[Any, ...]],
) -> Iterator[str]:
    """What is wrong with the stored rows of a projection, compared with those that the events give: both
    in key order, with the columns `names`."""
    key = [names.index(column.name) for column in target.primary_key if column.name != "run_id"]

    def placed(whose: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, str, tuple[Any, ...]]]:
        for row in rows:  # a damaged file may contain any type
            yield [(type(row[at]).__name__, row[at]) for at in key], whose, row

    try:
        both = merge(placed("found", stored), placed("right", expected), key=itemgetter(0))
        for place, of in groupby(both, key=itemgetter(0)):
            row = {whose: values for _, whose, values in of}
            if row.get("found") == row.get("right"):
                continue
            what = f"{target.name} {' '.join(str(value) for _, value in place)}"
            if "found" not in row:
                yield f"{what} is missing"
            elif "right" not in row:
                yield f"{what} follows from no event"
            else:
                differ = zip(names, row["found"], row["right"], strict=True)
                name, found, right = next(each for each in differ if each[1] != each[2])
                yield f"{what} has {name} {found!r}, the events give {right!r}"
    except DBAPIError as error:
        yield f"{target.name} cannot be read: {error.orig}"


def _row(row: type[SQLModel], value: object, **given: Any) -> dict[str, Any]:
    """A row's columns: those in `given`, and each other one from the field of `value` with its name."""
    return {name: given[name] if name in given else getattr(value, name) for name in row.model_fields}


def cause_rows(state: MemoryState) -> list[dict[str, Any]]:
    return [_row(CauseRow, cause, run_id=state.run_id) for cause in state.causes.values()]


def node_rows(state: MemoryState) -> list[dict[str, Any]]:
    living = [(n.node_id, n.number, n.label, None) for n in state.nodes.values()]
    gone = [(n, number_of(n), label, survivor) for n, (survivor, label) in state.absorbed.items()]
    names = ("node_id", "number", "label", "absorbed_by")
    return [{"run_id": state.run_id, **dict(zip(names, row, strict=True))} for row in (*living, *gone)]


def opened_row(state: MemoryState, number: int, position: int) -> dict[str, Any]:
    """A round that was just opened."""
    row = {"run_id": state.run_id, "round": number, "batch": state.batch(number), "position": position}
    return row | {"superseded_by": None, "superseded_at": None}


def group_row(run_id: str, position: int, batch: int, group: GroupIngested) -> dict[str, Any]:
    tags = msgspec.json.encode(group.tags).decode()
    place = {"position": position, "run_id": run_id, "batch": batch, "place": group.group}
    return _row(IngestedGroupRow, group, rollouts=len(group.rewards), tags=tags, **place)


def sum_rows(groups: Iterable[Mapping[Any, Any]]) -> list[dict[str, Any]]:
    """Rows of `group_row` added up, by step and by tag."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for group in groups:
        n, passes = group["rollouts"], group["passes"]
        values = 1, passes == n, 0 < passes < n, passes == 0, n, passes
        # A set: logs from before tags were each once may have one twice.
        for tag in ("", *dict.fromkeys(f"#{tag}" for tag in msgspec.json.decode(group["tags"]))):
            key = group["run_id"], group["batch"], group["step"], tag
            found[key] = [a + b for a, b in zip(found.get(key, [0] * len(SUMS)), values, strict=True)]
    names = ("run_id", "batch", "step", "tag", *SUMS)
    return [dict(zip(names, (*key, *sums), strict=True)) for key, sums in found.items()]


def question_row(run_id: str, now: OpenRound, question_id: str, cause_id: str) -> dict[str, Any]:
    """A question with one failure counted under the cause."""
    key = {"run_id": run_id, "round": now.number, "question_id": question_id, "cause_id": cause_id}
    return _row(CauseQuestionRow, now.candidates[question_id], failures=1, **key)


def moved_row(
    run_id: str, position: int, moved: FailureAssigned | FailureUnassigned
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A failure that somebody moved into a cause or out of one, and the row of its question and cause, which
    it does not change: it may be undone."""
    failure = moved.failure
    key = {
        "run_id": run_id,
        "round": failure.round,
        "question_id": failure.failure_id.rpartition(".")[0],
        "cause_id": moved.cause_id,
        "question": failure.question,
    }
    more = {"position": position, "failure_id": failure.failure_id}
    row = key | more | {"failures": 1 if isinstance(moved, FailureAssigned) else -1}
    return row, key | {"responses": failure.responses, "first": failure.first, "failures": 0}


def question_rows(run_id: str, now: OpenRound) -> list[dict[str, Any]]:
    """All rows of a round."""
    number = Counter((name.rpartition(".")[0], cause) for name, cause in now.settled.items())
    return [question_row(run_id, now, *pair) | {"failures": count} for pair, count in number.items()]


def cause_counts(now: OpenRound) -> dict[str, CauseCounts]:
    """A round's failures under each cause, and the questions that aimed at it."""
    found: dict[str, CauseCounts] = {}

    def of(cause_id: str) -> CauseCounts:
        return found.setdefault(cause_id, CauseCounts(round=now.number, cause_id=cause_id))

    for row in question_rows("", now):
        cause = of(row["cause_id"])
        cause.failures += row["failures"]
        cause.questions += 1
        cause.responses += row["responses"]
        cause.first += row["first"]
    for scored in now.candidates.values():
        if scored.cause_id is not None:
            of(scored.cause_id).aimed += 1
            of(scored.cause_id).aimed_kept += scored.verdict == "kept"
    for cause_id, tally in now.tallies.items():
        of(cause_id).aimed_valid, of(cause_id).agreement = tally.questions, tally.score
    return found


def _stored(counts: RoundCounts | CauseCounts) -> dict[str, Any]:
    """As a row: exact numbers as text, several names as JSON."""
    row = dict(counts)
    for name, value in row.items():
        if isinstance(value, Fraction):
            row[name] = str(value)
        elif isinstance(value, dict | tuple):
            row[name] = msgspec.json.encode(value).decode()
    return row


def history_rows(state: MemoryState, closed: OpenRound) -> list[dict[str, Any]]:
    """The causes after a commit, with its round's counts for each."""
    counts, number = cause_counts(closed), closed.number
    return [
        _stored(counts.get(row["cause_id"]) or CauseCounts(round=number, cause_id=row["cause_id"])) | row
        for row in standing_rows(state)
    ]


def standing_rows(state: MemoryState) -> list[dict[str, Any]]:
    """The states of the causes after a commit."""
    shares = state.schedule().shares
    return [
        _row(
            CauseStanding,
            cause,
            run_id=state.run_id,
            round=state.round,
            node_label=state.nodes[cause.node_id].label,
            probability=str(shares[cause.cause_id].p) if cause.cause_id in shares else None,
        )
        for cause in state.causes.values()
    ]


def round_row(state: MemoryState, closed: OpenRound, committed_at: str) -> dict[str, Any]:
    return _row(
        RoundSummaryRow,
        state,
        **_stored(round_counts(closed)),
        first_sequence=closed.first_sequence,
        last_sequence=state.sequence,
        epsilon_next=str(state.epsilon),
        epsilon_next_value=float(state.epsilon),
        active=len(state.active()),
        mastered=len(state.mastered()),
        nodes=len(state.nodes),
        state_hash=state.hash(state.reference_round, state.reference_failures),
        committed_at=committed_at,
    )


def round_counts(closed: OpenRound) -> RoundCounts:
    """What was counted of a round's questions, failures and causes."""
    scored = closed.candidates.values()
    verdicts = Counter(one.verdict for one in scored)
    reasons = Counter(one.invalid_reason or "not_recorded" for one in scored if one.verdict == "invalid")
    valid = [one for one in scored if one.verdict != "invalid"]
    voted = [one for one in valid if one.votes_are == "answers"]
    rewarded = [one for one in valid if one.votes_are == "rewards"]
    labels = [one.label_true for one in scored if one.verdict == "kept" and one.label_true is not None]
    failures = closed.failures.values()
    judged = [
        (label_true, failure.right)
        for failure in failures
        if (label_true := closed.candidates[failure.question_id].label_true) is not None
    ]
    right = [gives for _, gives in judged if gives is not None]
    against_false = [gives for label_true, gives in judged if not label_true and gives is not None]
    return RoundCounts(
        round=closed.number,
        candidates=len(scored),
        **{verdict: verdicts[verdict] for verdict in VERDICTS},
        invalid_reasons=dict(sorted(reasons.items())),
        responses=sum(one.responses for one in voted),
        answers=sum(count for one in voted for _, count in one.votes),
        rollouts=sum(one.responses for one in rewarded),
        passes=sum(one.first for one in rewarded),
        undecided=sum(one.undecided for one in valid),
        labels_judged=len(labels),
        labels_true=sum(labels),
        observed=len(failures),
        against_answers=sum(failure.against == "answer" for failure in failures),
        failures_judged=len(judged),
        against_false_labels=sum(not label_true for label_true, _ in judged),
        right_answers=sum(right) if right else None,
        right_against_false=sum(against_false) if against_false else None,
        with_cause=len(closed.settled),
        questions_with_cause=len({name.rpartition(".")[0] for name in closed.settled}),
        promoted=len(closed.promoted),
        promoted_causes=tuple(sorted(closed.promoted, key=number_of)),
        reactivated=len(closed.reactivated),
        reactivated_causes=tuple(sorted(closed.reactivated, key=number_of)),
        created=len(closed.created),
    )


def reread(content: Any) -> bytes | None:
    """A stored snapshot as this version writes it; None if it is not a state."""
    try:
        return to_bytes(from_bytes(content))
    except UNREADABLE:
        return None


def snapshot_row(state: MemoryState) -> dict[str, Any]:
    digest = state.hash(state.reference_round, state.reference_failures)
    return _row(SnapshotRow, state, version=VERSION, state_hash=digest, state=to_bytes(state))
