"""What `verify` says of a log that somebody changed and hashed again, and of rows beside the log."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs

from diagevo.memory.audit.verification import Fault
from diagevo.memory.audit.verify import verify
from diagevo.memory.events.records import GENESIS, Recorded
from diagevo.memory.log import heads
from tests.contracts.databases import SQLiteStores, Store
from tests.ingest.conftest import CONFIGURED, step
from tests.ingest.test_recording import diagnose, record
from tests.memory.play import candidate, first_round


@pytest.fixture
def played(store: Store) -> Store:
    """Two rounds; no chain heads outside the database, which would tell of any change."""
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 2), ("swaps digits", "copy", 1)])
        memory.open_round(2)
        memory.score([candidate("r2.q0", 9, cause="c1")])
        memory.commit()
        (memory.folder / heads.NAME).unlink()
    return store


def _faults(store: Store) -> list[Fault]:
    with store.log() as log:
        return verify(log, "a", store.root / "a").faults


def test_positions_that_were_swapped_are_found(played: Store) -> None:
    swap = {5: 6, 6: 5}
    played.rewrite(lambda r: structs.replace(r, position=swap.get(r.position, r.position)))
    assert [(f.check, f.message) for f in _faults(played)] == [("chain", "#5 follows #6")]


def test_a_last_position_beyond_those_given_is_found(played: Store) -> None:
    with played.log() as log:
        last = log.last_position()
    played.rewrite(lambda r: structs.replace(r, position=99) if r.position == last else r)
    [fault] = [f for f in _faults(played) if f.check == "positions"]
    assert f"{last} given, {last} there, the last at 99" in fault.message


def test_a_head_of_the_right_length_and_another_hash_is_found(played: Store) -> None:
    played.tamper("UPDATE run SET hash = 'x'")
    assert [f.check for f in _faults(played)] == ["chain"]


def test_a_row_of_a_projection_that_no_event_made_is_found(played: Store) -> None:
    played.tamper(
        "INSERT INTO cause SELECT run_id, 'c9', 9, description, node_id, state, frequency, created_round"
        " FROM cause WHERE cause_id = 'c1'"
    )
    [fault] = _faults(played)
    assert "cause c9 follows from no event" in fault.message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"responses":12', '"responses":0', "12 votes of 0 responses"),
        ('"config":{}', '"config":{"memory":{"theta_up":"x"}}', "cannot be"),
        ('"config":{}', '"config":{"memory":[]}', "memory of its configuration is no section"),
        ('"config":{}', '"config":{"schedule":{"policy":"fixed"}}', "cannot be"),
        ('"verdict":"kept"', '"verdict":"ke', "cannot be read"),
    ],
    ids=str,
)
def test_hashed_nonsense_is_a_fault_at_its_event_and_not_our_crash(
    played: Store, old: str, new: str, message: str
) -> None:
    changed: list[int] = []

    def change(record: Recorded) -> Recorded:
        if old not in record.payload:
            return record
        changed.append(record.position)
        return structs.replace(record, payload=record.payload.replace(old, new))

    played.rewrite(change)
    [fault] = [f for f in _faults(played) if f.check == "replay"]
    assert message in fault.message
    assert fault.position in changed


def test_a_second_row_of_the_last_position_is_found(played: Store) -> None:
    played.tamper("INSERT INTO log (id, position) VALUES (2, 7)")
    [fault] = _faults(played)
    assert (fault.check, fault.message[-25:]) == ("positions", "; log has 2 rows, not one")


@pytest.mark.parametrize(
    "time",
    [
        "'2020-01-01T00:00:00.000000+00:00'",
        "'2999-01-01T00:00:00.000000+00:00'",
        "'yesterday'",
        "replace(committed_at, '+00:00', 'Z')",
    ],
)
def test_the_time_of_a_commit_is_that_of_its_event(played: Store, time: str) -> None:
    played.tamper(f"UPDATE round_summary SET committed_at = {time} WHERE round = 1")
    [fault] = _faults(played)
    assert fault.message.startswith("round_summary 1 has committed_at")


@pytest.mark.parametrize(("later", "faults"), [(-1, 1), (1, 0), (59, 0), (60, 1)])
def test_a_commit_of_an_older_version_may_say_a_time_shortly_after_its_event(
    played: Store, later: int, faults: int
) -> None:
    """It looked at the clock again."""
    with played.log() as log:
        [event] = log.read("a", types=["RoundCommitted"], rounds=(1, 1))
    at = datetime.fromisoformat(event.recorded_at) + timedelta(seconds=later)
    text = at.isoformat(timespec="microseconds")
    played.tamper(f"UPDATE round_summary SET committed_at = '{text}' WHERE round = 1")
    assert len(_faults(played)) == faults


def test_a_group_whose_question_is_otherwise_is_a_fault_at_its_event(store: Store) -> None:
    with store.open("ingested") as memory:
        memory.configure(CONFIGURED)
        record(memory, step(1, a="+-"), step(2, a="+-"), step(3, b="+"))
        diagnose(memory, {"a": "drops a carry"})
    store.rewrite(lambda row: row.payload.replace('"answer":"7"', '"answer":"8"'), run="ingested")
    (store.root / "ingested" / heads.NAME).unlink()
    with store.log() as log:
        [fault] = verify(log, "ingested", store.root / "ingested").faults
        [event] = log.read("ingested", after=(fault.position or 0) - 1, until=fault.position)
    assert (fault.check, event.type) == ("replay", "CandidateScored")
    assert fault.message.startswith(f"#{fault.position}: ")


def _put(store: Store, rows: Sequence[Recorded]) -> None:
    """Make these the events of the run, the chain hashed again over them."""
    statements, previous = ["UPDATE event SET position = -position"], GENESIS
    for number, row in enumerate(rows, start=1):
        moved = structs.replace(row, position=number, sequence=number, previous_hash=previous)
        previous = moved.computed_hash
        statements.append(
            f"UPDATE event SET position = {number}, sequence = {-number},"
            f" previous_hash = '{moved.previous_hash}', hash = '{previous}' WHERE position = {-row.position}"
        )
    statements += ["DELETE FROM event WHERE position < 0", "UPDATE event SET sequence = -sequence"]
    store.tamper(*statements, f"UPDATE run SET sequence = {len(rows)}, hash = '{previous}'")


@pytest.mark.slow
def test_an_event_that_is_dropped_or_changes_places_is_found(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    """As the rows lie, and with all hashes made again: then the heads outside the database say so."""
    whole = sqlite_stores.new(tmp_path)
    with whole.open() as memory:
        first_round(memory, [("drops a carry", "add", 2), ("swaps digits", "copy", 1)])
    with whole.log() as log:
        rows = list(log.read("a"))
    assert _faults(whole) == []
    kept = (tmp_path / "log.db").read_bytes()

    def found(change: Callable[[], None]) -> list[str]:
        (tmp_path / "log.db").write_bytes(kept)
        change()
        return [fault.check for fault in _faults(whole)]

    for place, row in list(enumerate(rows))[::5]:
        before, this = row.position - 1, row.position
        gone = f"DELETE FROM event WHERE position = {this}"
        assert found(lambda sql=gone: whole.tamper(sql))[0] == "chain", row
        assert "head" in found(lambda at=place: _put(whole, rows[:at] + rows[at + 1 :])), row
        if place:
            moves = [(this, -1), (before, this), (-1, before)]
            sql = [f"UPDATE event SET position = {to} WHERE position = {of}" for of, to in moves]
            assert found(lambda sql=sql: whole.tamper(*sql))[0] == "chain", row
            swapped = [*rows[: place - 1], row, rows[place - 1], *rows[place + 1 :]]
            assert "head" in found(lambda swapped=swapped: _put(whole, swapped)), row
