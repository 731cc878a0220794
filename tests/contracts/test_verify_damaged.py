"""What `verify` and the readers say of a database that holds what DiagEvo never writes."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from diagevo.errors import DamagedError
from diagevo.memory.audit.verification import Verification
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import CandidateScored, Embedder
from diagevo.memory.log.artifacts import Artifacts, Reply
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import revision
from diagevo.memory.log.vectors import Vectors
from tests.contracts.databases import SQLiteStores, Store
from tests.memory.play import candidate, embed, first_round

QUESTION = "What is 2 + 2?"
Told = list[tuple[str, int | None]]


def _play(store: Store) -> Store:
    """Two commits. #3 is the only CandidateScored of round 1, and its question is an artifact."""
    with store.open() as memory:
        memory.open_round(1)
        question, reference = memory.artifacts.put_many([QUESTION, "four"])
        memory.score([structs.replace(candidate("r1.q0"), question=question, reference=reference)])
        memory.commit()
        first_round(memory, [])
    return store


@pytest.fixture
def played(store: Store) -> Store:
    return _play(store)


@pytest.fixture
def in_sqlite(sqlite_stores: SQLiteStores, tmp_path: Any) -> Store:
    """Only SQLite keeps any value in any column."""
    return _play(sqlite_stores.new(tmp_path))


def _verified(store: Store, *, deep: bool = True) -> Verification:
    with store.log() as log:
        return verify(log, "a", store.root / "a", deep=deep)


def _told(report: Verification) -> Told:
    return [(fault.check, fault.position) for fault in report.faults]


@pytest.mark.parametrize("payload", ['{"a":', "", "7", "[" * 5000])
def test_a_payload_that_is_no_event_is_a_fault_at_its_position(played: Store, payload: str) -> None:
    played.tamper(f"UPDATE event SET payload = '{payload}' WHERE position = 3")
    report = _verified(played)
    assert _told(report) == [("chain", 3)]
    assert "the bytes of #3 CandidateScored are not those that were written" in report.faults[0].message


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("payload", "CAST(payload AS BLOB)", "its payload is of type bytes"),
        ("round", "'x'", "its round is of type str"),
        ("schema_version", "0.5", "its schema_version is of type float"),
        ("cause_id", "X'00'", "its cause_id is of type bytes"),
        ("payload", "CAST(X'80FF' AS TEXT)", "Could not decode to UTF-8 column 'payload'"),
    ],
)
def test_a_column_of_another_type_is_a_fault_at_its_position(
    in_sqlite: Store, column: str, value: str, said: str
) -> None:
    in_sqlite.tamper(f"UPDATE event SET {column} = {value} WHERE position = 3")
    report = _verified(in_sqlite, deep=False)
    assert _told(report) == [("chain", 3)]
    assert said in report.faults[0].message
    told = [fault.message for fault in _verified(in_sqlite).faults if fault.check == "pages"]
    assert any(f"value in event.{column}" in message for message in told) or "decode" in said


@pytest.mark.parametrize("content", ["CAST(content AS TEXT)", "CAST(X'80FF' AS TEXT)", "7"])
def test_a_text_that_is_not_bytes_is_a_fault_at_the_event_that_names_it(
    in_sqlite: Store, content: str
) -> None:
    in_sqlite.tamper(f"UPDATE artifact SET content = {content} WHERE content = CAST('{QUESTION}' AS BLOB)")
    assert ("text", 3) in _told(_verified(in_sqlite))


def test_a_column_under_another_name_is_told(in_sqlite: Store) -> None:
    """Nothing but the next writer would meet it."""
    with in_sqlite.log() as log, log.database.write() as connection:
        connection.exec_driver_sql("ALTER TABLE reply RENAME COLUMN output_tokens TO outLut_tokens")
    [fault] = _verified(in_sqlite, deep=False).faults
    assert (fault.check, fault.message) == ("schema", "table reply is not as the migrations make it")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE snapshot SET sequence = 1 WHERE round = 1", "the snapshot of round 1 is not the state"),
        ("UPDATE snapshot SET round = 9 WHERE round = 1", "snapshot 9 follows from no event"),
        ("UPDATE round_summary SET round = 9 WHERE round = 2", "round_summary 2 is missing"),
        ("UPDATE opened_round SET round = 9 WHERE round = 1", "opened_round 1 is missing"),
    ],
)
def test_a_row_beside_the_log_that_stands_in_a_wrong_place_is_found(
    played: Store, statement: str, said: str
) -> None:
    played.tamper(statement)
    assert said in " | ".join(fault.message for fault in _verified(played, deep=False).faults)


def test_a_stored_reply_without_its_text_is_found_by_the_deep_check(played: Store) -> None:
    with played.log() as log:
        Artifacts(log.database).remember_reply("m", "9" * 64, Reply("yes", 1, 1))
    assert _verified(played).ok
    played.tamper("UPDATE reply SET text = 'x'")
    [fault] = _verified(played).faults
    assert (fault.check, fault.message) == (
        "text",
        "the reply of m to 999999999999… is missing or was changed",
    )


def test_what_has_no_digest_is_said_to_be_unchecked_and_its_form_is_checked(played: Store) -> None:
    with played.log() as log:
        Vectors(log.database, "a", Embedder("hand", 8, "1")).embed([QUESTION], embed)
    report = _verified(played)
    assert report.ok
    assert report.notes == [
        "outside the chain, so types were checked and values were not (rows of): 1 vector"
    ]
    columns = "run_id, round, question_id, question, label"
    played.tamper(f"INSERT INTO oracle ({columns}) VALUES ('a', 1, 'q', '', '')")
    assert _verified(played).notes == [f"{report.notes[0]}, 1 oracle"]
    played.tamper("UPDATE vector SET model = 'hand@1/7'")
    assert _told(_verified(played)) == [("vectors", None)]


def test_the_last_position_given_may_be_missing(played: Store) -> None:
    played.tamper("UPDATE log SET id = 2")
    assert ("positions", None) in _told(_verified(played))


READERS: dict[str, tuple[str, Callable[[Log], Any]]] = {
    "an event": ("UPDATE event SET round = 'x' WHERE position = 3", lambda log: list(log.read("a"))),
    "a chosen fact": (
        "UPDATE event SET round = 'x' WHERE type = 'CandidateScored'",
        lambda log: list(log.chosen("a", [CandidateScored])),
    ),
    "a fact": ("UPDATE event SET payload = '[' WHERE position = 3", lambda log: list(log.facts("a"))),
    "bytes as a fact": (
        "UPDATE event SET payload = X'07' WHERE position = 3",
        lambda log: list(log.facts("a")),
    ),
    "a version": (
        "UPDATE event SET schema_version = 'x' WHERE position = 3",
        lambda log: list(log.facts("a")),
    ),
    "a model": (
        "UPDATE event SET payload = '[]' WHERE position = 3",
        lambda log: [record.event for record in log.read("a")],
    ),
    "a head": ("UPDATE run SET sequence = 'x'", lambda log: log.head("a")),
    "the log": ("UPDATE log SET position = 'x'", lambda log: log.last_position()),
    "a run": ("UPDATE run SET run_id = X'00'", lambda log: log.runs()),
    "a text": (
        "UPDATE artifact SET content = 7",
        lambda log: Artifacts(log.database).get_many([row.question for row in _scored(log)]),
    ),
    "a revision": (
        "UPDATE alembic_version SET version_num = X'30'",
        lambda log: revision(log.database.engine.connect()),
    ),
}


def _scored(log: Log) -> list[Any]:
    return [record.event for record in log.read("a", types=["CandidateScored"])]


@pytest.mark.parametrize(("statement", "read"), READERS.values(), ids=list(READERS))
def test_a_reader_refuses_what_is_damaged_and_says_the_next_step(
    in_sqlite: Store, statement: str, read: Callable[[Log], Any]
) -> None:
    in_sqlite.tamper(statement)
    with (
        in_sqlite.log() as log,
        pytest.raises(DamagedError, match=r"damaged|cannot be read|was changed") as refused,
    ):
        read(log)
    assert refused.value.exit_code == (1 if "was changed" in refused.value.message else 5)
    assert refused.value.hint is not None
    assert "diagevo db restore" in refused.value.hint


def test_no_text_has_no_vector(in_sqlite: Store) -> None:
    with in_sqlite.log() as log:
        assert Vectors(log.database, "a", Embedder("hand", 8, "1")).of([]).shape == (0, 8)


def test_a_damaged_vector_is_refused(in_sqlite: Store) -> None:
    with in_sqlite.log() as log:
        Vectors(log.database, "a", Embedder("hand", 8, "1")).embed([QUESTION], embed)
    in_sqlite.tamper("UPDATE vector SET vector = X'0000'")
    with in_sqlite.log() as log, pytest.raises(DamagedError, match="the vector hand@1/8 of"):
        Vectors(log.database, "a", Embedder("hand", 8, "1")).of([QUESTION])
