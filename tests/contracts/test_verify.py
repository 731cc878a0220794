"""What tampering leads `verify` to say. Each damage is done behind the triggers' back."""

import pytest
from msgspec import structs
from sqlalchemy import select, text

from diagevo.memory.audit.verification import Verification
from diagevo.memory.audit.verify import verify
from diagevo.memory.log.tables import EVENT
from diagevo.memory.memory import Memory
from diagevo.memory.state import projection
from tests.contracts.databases import Store
from tests.memory.play import candidate, first_round


def _verified(store: Store, *, deep: bool = False) -> Verification:
    with store.log() as log:
        return verify(log, "a", store.root / "a", deep=deep)


def test_an_untouched_log_is_well(played: Store) -> None:
    report = _verified(played)
    assert (report.ok, report.rounds, report.heads, report.notes) == (True, 2, 2, [])
    with played.log() as log:
        assert report.events == log.count("a") == log.head("a").sequence


def test_a_damaged_byte_names_its_event(played: Store) -> None:
    played.tamper(
        "UPDATE event SET payload = replace(payload, '\"first\":6', '\"first\":7') WHERE position = 3"
    )
    report = _verified(played)
    assert [(f.check, f.position) for f in report.faults] == [("chain", 3)]
    assert report.notes == ["not replayed: these are not the events that were written"]
    assert "the bytes of #3 CandidateScored are not those that were written" in report.faults[0].message


@pytest.mark.parametrize(
    "column", ["cause_id", "causation_id", "recorded_at", "round", "schema_version", "type"]
)
def test_every_column_is_under_the_hash(played: Store, column: str) -> None:
    value = "7" if column in ("round", "schema_version") else "'2026-01-01'"
    played.tamper(f"UPDATE event SET {column} = {value} WHERE position = 5")
    assert [(f.check, f.position) for f in _verified(played).faults] == [("chain", 5)]


def test_a_deleted_row_names_the_gap(played: Store) -> None:
    played.tamper("DELETE FROM event WHERE position = 5")
    faults = _verified(played).faults
    assert [(f.check, f.position) for f in faults] == [("chain", 6), ("positions", None)]
    assert "event 5 of the run is missing" in faults[0].message


def test_reordered_rows_name_the_first(played: Store) -> None:
    played.tamper(
        "UPDATE event SET sequence = -sequence, position = -position WHERE position IN (5, 6)",
        "UPDATE event SET sequence = 11 + sequence, position = 11 + position WHERE position < 0",
    )
    faults = _verified(played).faults
    assert [(f.check, f.position) for f in faults] == [("chain", 5)]


def test_a_cut_tail_is_missed_by_head_and_projection(played: Store) -> None:
    played.tamper("DELETE FROM event WHERE round = 2 AND type = 'RoundCommitted'")
    messages = " | ".join(f.message for f in _verified(played).faults)
    assert "the log's end is missing" in messages
    assert "event 18, in round 2, ended the chain, and the database does not have it" in messages


def test_a_full_rewrite_is_seen_by_the_head_outside_the_database(played: Store) -> None:
    played.rewrite(lambda row: row.payload.replace("drops a carry", "drops a digit"))
    faults = _verified(played).faults
    assert {f.check for f in faults} >= {"head"}
    assert "the log was rewritten" in faults[0].message
    (played.root / "a" / "chain-heads.jsonl").unlink()
    rebuilt = _verified(played)
    assert "a full rewrite would go unnoticed" in rebuilt.notes[0]


def test_a_consequence_that_does_not_follow_is_named_by_the_replay(played: Store) -> None:
    """Hashes and heads made to agree: only the fold can see it."""
    played.rewrite(lambda row: row.payload.replace('"questions":1', '"questions":2'))
    (played.root / "a" / "chain-heads.jsonl").unlink()
    with played.log() as log:
        promoted = next(log.read("a", types=["CausePromoted"]))
    [fault] = _verified(played).faults
    assert (fault.check, fault.position, fault.event_id) == ("replay", promoted.position, promoted.event_id)
    assert "the votes give 3/4 over 1 questions" in fault.message


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE cause SET frequency = 9", "cause c1 has frequency 9, the events give 0"),
        ("UPDATE round_summary SET failures = 9 WHERE round = 1", "round_summary 1 has failures 9"),
        ("DELETE FROM cause_history WHERE round = 1", "cause_history 1 c1 is missing"),
        ("UPDATE skill_node SET label = 'x'", "skill_node n1 has label 'x'"),
    ],
)
def test_a_projection_that_differs_is_named(played: Store, statement: str, named: str) -> None:
    played.tamper(statement)
    [fault] = _verified(played).faults
    assert fault.check == "projection"
    assert named in fault.message


def test_a_damaged_snapshot_changes_no_result(played: Store) -> None:
    with played.log() as log:
        whole = projection.load(log, "a", snapshots=False)
        with log.database.write() as connection:
            connection.execute(projection.SNAPSHOT.update().values(state=b"{}"))
        assert projection.load(log, "a") == whole
    assert ["snapshot of round" in f.message for f in _verified(played).faults] == [True, True]


def test_a_changed_text_is_found_by_the_deep_check(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        question, reference = memory.artifacts.put_many(["What is 2 + 2?", "four"])
        scored = structs.replace(candidate("r1.q0"), question=question, reference=reference)
        memory.score([scored])
        memory.commit()
    assert _verified(store, deep=True).ok
    hexed = "X'78'" if store.dialect == "sqlite" else "'\\x78'::bytea"
    store.tamper(f"UPDATE artifact SET content = {hexed} WHERE digest = '{reference}'")
    [fault] = _verified(store, deep=True).faults
    assert (fault.check, fault.position) == ("text", 3)
    assert _verified(store).ok


def test_the_chain_head_outside_is_written_at_each_commit(store: Store) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 1)])
        assert _heads(memory) == 1
        memory.open_round(2)
        memory.score([candidate("r2.q0")])
        memory.commit()
        assert _heads(memory) == 2
        with memory.database.read() as connection:
            last = connection.execute(
                select(EVENT.c.hash).order_by(EVENT.c.position.desc()).limit(1)
            ).scalar_one()
            named = connection.execute(text("SELECT hash FROM run WHERE run_id = 'a'")).scalar_one()
        assert last == named
        assert last in (memory.folder / "chain-heads.jsonl").read_text().splitlines()[-1]


def _heads(memory: Memory) -> int:
    return len((memory.folder / "chain-heads.jsonl").read_text().splitlines())
