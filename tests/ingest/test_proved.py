"""A round of ingested groups is held against them: what was changed and sealed anew is found."""

import json
from pathlib import Path
from typing import Any

import pytest

from diagevo.errors import InconsistentError
from diagevo.ingest.recording import IngestSummary, Recorder
from diagevo.ingest.rounds import Rounds
from diagevo.memory.audit.verify import verify
from diagevo.memory.history import open_history
from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import prepare
from diagevo.memory.memory import Memory
from diagevo.memory.transfer.bundle import check_bundle, export_bundle, import_bundle
from tests.contracts.databases import Store
from tests.ingest.conftest import SETTINGS, step
from tests.memory.audit.forging import Rows, forge_events

OTHER = "5" * 64


@pytest.fixture
def ingested(memory: Memory, tmp_path: Path) -> Store:
    """Round 1 is open, its first group has passes 0 and 2 and failures 1 and 3; round 2 waits."""
    steps = [step(number, a="+-+-", b="----") for number in (1, 2, 3)]
    Recorder(memory, SETTINGS).record(steps, IngestSummary())
    assert Rounds(memory).open_next() == 1
    return Store(f"sqlite:///{tmp_path / 'log.db'}", tmp_path)


def _canonical(payload: dict[str, Any]) -> str:
    """As the log writes it: another spelling is refused before anything is compared."""
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _faults(store: Store) -> list[str]:
    with store.log() as log:
        return [fault.message for fault in verify(log, "a", store.root / "a").faults]


def test_what_was_ingested_verifies(ingested: Store) -> None:
    assert _faults(ingested) == []


@pytest.mark.parametrize(
    ("type_", "key", "change", "said"),
    [
        ("GroupIngested", (1, 0), {"passes": 3}, "2 of 4 rewards are 0.5 or more, recorded are 3 passes"),
        (
            "GroupIngested",
            (1, 0),
            {"failed": []},
            "its failed rollouts are not those whose rewards did not pass",
        ),
        ("GroupIngested", (3, 0), {"rewards": [1.0, 1.0, 1.0, 0.0]}, "3 of 4 rewards are 0.5 or more"),
        (
            "GroupIngested",
            (1, 1),
            {"reference": OTHER},
            "a reference exactly where some passed and some failed",
        ),
        ("GroupIngested", (3, 1), {"group": 2}, "its id is another event's"),
        ("GroupIngested", (1, 0), {"answer": "8"}, "the label of r1.q0 is not that of its group 0 of step 1"),
        ("CandidateScored", "r1.q0", {"question": OTHER}, "the question of r1.q0 is not that of its group 0"),
        (
            "CandidateScored",
            "r1.q0",
            {"votes": [["passed", 1], ["failed", 3]], "first": 1, "second": 3},
            "the number of passes of r1.q0 is not that of its group 0 of step 1",
        ),
        (
            "CandidateScored",
            "r1.q1",
            {"verdict": "kept"},
            "its votes give too_hard (none of 4 rewards passed",
        ),
        ("CandidateScored", "r1.q0", {"second": 3}, "its votes are not 2 passed and 2 failed of 4 rewards"),
        (
            "FailureObserved",
            "r1.q0.a1",
            {"trajectory": OTHER},
            "r1.q0.a1 is not a failed rollout of its ingested",
        ),
        (
            "FailureObserved",
            "r1.q0.a1",
            {"failure_id": "r1.q0.a2"},
            "its id is another event's",
        ),
        (
            "FailureObserved",
            "r1.q0.a1",
            {"step": 2},
            "r1.q0.a1 is not a failed rollout of its ingested group",
        ),
        ("FailureObserved", "r1.q0.a1", {"reference": OTHER}, "another response than the reference of r1.q0"),
    ],
)
def test_what_was_made_otherwise_of_it_is_found(
    ingested: Store, type_: str, key: str | tuple[int, int], change: dict[str, Any], said: str
) -> None:
    def told(values: dict[str, Any]) -> dict[str, Any]:
        ids = {values.get("failure_id", values.get("question_id")), (values.get("step"), values.get("group"))}
        return values | change if key in ids else values

    ingested.rewrite(
        lambda row: _canonical(told(json.loads(row.payload))) if row.type == type_ else row.payload
    )
    [fault] = _faults(ingested)
    assert said in fault


def test_import_refuses_a_round_that_is_not_its_groups(ingested: Store, tmp_path: Path) -> None:
    history = open_history(ingested.url, "a")
    export_bundle(history, history.end, tmp_path / "bundle")
    history.close()

    def other_way(rows: Rows) -> None:
        for row in rows:
            if row["type"] == "FailureObserved":
                row["payload"] = _canonical(json.loads(row["payload"]) | {"trajectory": OTHER})

    forge_events(tmp_path / "bundle", other_way)
    target = Database(str(tmp_path / "other.db"))
    prepare(target, create=True)
    for take in (check_bundle, lambda file: import_bundle(file, target, root=tmp_path / "home")):
        with pytest.raises(InconsistentError, match=r"#\d+: r1\.q0\.a1 is not a failed rollout of its"):
            take(tmp_path / "bundle")
    target.close()
