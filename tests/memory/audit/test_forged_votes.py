"""The filter is proved: where votes, counts, label or verdict were changed and the chain sealed anew, `runs
import` refuses and `memory verify` names the event.

The question is r1.q0 of `played.py`: 6, 3 and 3 votes of 12, kept; r1.q1 has 12 of 12, too easy.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diagevo.memory.audit.verify import verify
from diagevo.memory.history import open_history
from diagevo.memory.transfer.bundle import export_bundle
from tests.cli.program import invoke
from tests.contracts.databases import Store
from tests.memory.audit.forging import Rows, forge_events

pytestmark = pytest.mark.slow

FORGED = {
    "votes": ("r1.q0", {"votes": [["forged", 12]]}, "its votes give 12 and 0 of 12, recorded are 6 and 3"),
    "label": ("r1.q0", {"label": "999"}, "its label is not the answer that has the most votes"),
    "first": ("r1.q0", {"first": 7}, "its votes give 6 and 3 of 12, recorded are 7 and 3"),
    "kept": (
        "r1.q0",
        {"votes": [["4", 12]], "first": 12, "second": 0},
        "its votes give too_easy (p₁ = 1 > p_high = 3/4), recorded is kept",
    ),
    "too easy": (
        "r1.q1",
        {"verdict": "kept"},
        "its votes give too_easy (p₁ = 1 > p_high = 3/4), recorded is kept",
    ),
}


def _forger(question: str, change: dict[str, Any]) -> Callable[[str, str], str]:
    """Of a type and a payload the payload that is told instead."""

    def told(type_: str, payload: str) -> str:
        values = json.loads(payload)
        if (type_, values.get("question_id")) != ("CandidateScored", question):
            return payload
        return json.dumps(values | change, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    return told


@pytest.fixture
def bundle(played_sqlite: Store, tmp_path: Path) -> Path:
    history = open_history(played_sqlite.url, "played")
    export_bundle(history, history.end, tmp_path / "bundle")
    history.close()
    return tmp_path / "bundle"


@pytest.mark.parametrize("forged", FORGED)
def test_import_refuses_it_and_names_the_event(bundle: Path, tmp_path: Path, forged: str) -> None:
    question, change, said = FORGED[forged]
    told = _forger(question, change)

    def rewrite(rows: Rows) -> None:
        for row in rows:
            row["payload"] = told(row["type"], row["payload"])

    forge_events(bundle, rewrite)
    result = invoke("runs", "import", bundle, env={"DIAGEVO_HOME": str(tmp_path / "home")})
    assert result.exit_code == 5, result.output
    output = " ".join(result.output.split())
    assert said in output
    assert "has an impossible history: #" in output
    assert "CandidateScored" in output


@pytest.mark.parametrize("forged", FORGED)
def test_verify_names_the_event_and_what_its_votes_give(mine: Store, forged: str) -> None:
    question, change, said = FORGED[forged]
    told = _forger(question, change)
    mine.rewrite(lambda row: told(row.type, row.payload), run="played")
    with mine.log() as log:
        [position] = [
            row.position
            for row in log.read("played", types=["CandidateScored"])
            if json.loads(row.payload)["question_id"] == question
        ]
        [fault] = [
            fault for fault in verify(log, "played", mine.root / "played").faults if fault.check == "replay"
        ]
    assert fault.position == position
    assert fault.message.endswith(said)


def test_a_bundle_that_nobody_changed_is_taken(bundle: Path, tmp_path: Path) -> None:
    forge_events(bundle, lambda _: None)
    result = invoke("runs", "import", bundle, env={"DIAGEVO_HOME": str(tmp_path / "home")})
    assert result.exit_code == 0, result.output
