"""Groups in which every response failed, held against the known answer: `diagnose --all-failed`."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from diagevo.config.loading import resolve
from diagevo.errors import OutOfOrderError
from diagevo.ingest.cost import cost
from diagevo.ingest.recording import IngestSummary, Recorder, events_of
from diagevo.ingest.rollout_steps import grouped
from diagevo.ingest.rounds import Rounds
from diagevo.memory.audit.ingested_groups import first_mismatch
from diagevo.memory.events import FailureObserved
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.memory import Memory
from tests.cli.program import invoke
from tests.diagnosis.server import Answer, Server
from tests.ingest.conftest import SETTINGS, step

pytestmark = pytest.mark.slow
CAUSE = "forgets to check each candidate against the domain of the original equation"
REPLY = {
    "matched_cause_id": None,
    "error_cause": CAUSE,
    "duplicate": False,
    "create_new_node": True,
    "new_node_label": "checking each candidate against the conditions of the original equation",
    "assigned_node": None,
    "merge": False,
    "merged_label": None,
}
"""To whatever is asked."""
GROUPS = [("both", "+-", "7"), ("known", "--", "41"), ("unknown", "--", None)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two rounds, in each a group of every kind: with both, all failed, all failed without an answer."""
    with (tmp_path / "own.jsonl").open("w") as out:
        for number in (1, 2):
            for name, signs, answer in GROUPS:
                for sample, sign in enumerate(signs):
                    row = {"step": number, "prompt": name, "response": f"{name} says {number}.{sample}"}
                    out.write(json.dumps(row | {"reward": sign == "+", "answer": answer}) + "\n")
    own = ("ingest", "jsonl", tmp_path / "own.jsonl", "--run", "own", "--steps-per-round", "1")
    said = "4 all failed: no pass to compare with; diagnose --local needs none (2 with a known answer"
    assert said in run(tmp_path, *own)
    return tmp_path


def run(home: Path, *words: Any, exit: int = 0) -> str:
    result = invoke(*words, env={"DIAGEVO_HOME": str(home), "OPENAI_API_KEY": "none"})
    assert result.exit_code == exit, result.output
    return " ".join(result.output.split())


def data(home: Path, *words: str) -> Any:
    env = {"DIAGEVO_HOME": str(home), "OPENAI_API_KEY": "none"}
    return json.loads(invoke(*words, "--run", "own", "--json", env=env).stdout)["data"]


def asked(home: Path, *more: str) -> list[str]:
    """The extractions' texts, as the service saw them."""
    with Server(lambda request, before: Answer(json.dumps(REPLY))) as server:
        run(home, "diagnose", "--run", "own", "--model", "m", "--base-url", server.url, *more)
        texts = [request["messages"][-1]["content"] for request in server.requests]
    return [text for text in texts if "Attempt That Failed" in text]


def told(home: Path) -> dict[str, str]:
    rows = data(home, "memory", "query", "SELECT failure_id, against FROM v_failure ORDER BY position")
    return {row["failure_id"]: row["against"] for row in rows}


BOTH, KNOWN = ("r1.q0.a1", "r2.q0.a1"), ("r1.q1.a0", "r1.q1.a1", "r2.q1.a0", "r2.q1.a1")
EVERY = dict.fromkeys(BOTH, "response") | dict.fromkeys(KNOWN, "answer")


def test_they_are_asked_with_the_answer_alone_and_told_as_evidence_of_another_kind(home: Path) -> None:
    texts = asked(home, "--all-failed")
    of_known = [text for text in texts if "known says" in text]
    assert (len(texts), len(of_known)) == (6, 4)
    assert all("41" in text and "Attempt That Passed" not in text for text in of_known)
    assert all("Attempt That Passed" in text for text in texts if "both says" in text)
    assert not any("unknown says" in text for text in texts)
    assert told(home) == EVERY
    story = run(home, "memory", "why", "r1.q1.a1", "--run", "own", "--full")
    assert "no response passed: compared with the known answer" in story
    assert "known answer; no response passed 41" in story
    assert data(home, "memory", "why", "r1.q1.a1")["against"] == "answer"
    assert "4 of 6 failures compared with the known answer" in run(home, "memory", "show", "--run", "own")
    observed = run(home, "memory", "log", "--type", "FailureObserved", "--run", "own")
    assert "against the known answer" in observed
    assert "as it was written" in run(home, "memory", "verify", "--run", "own", "--deep")
    run(home, "view", "--export", str(home / "pages"), "--run", "own")
    page = next((home / "pages").rglob("r1.q1.a1.html")).read_text("utf-8")
    assert "no response passed: compared with the known answer" in page


def test_the_wish_is_remembered_and_without_it_nothing_changes(home: Path) -> None:
    assert len(asked(home)) == 2
    assert told(home) == dict.fromkeys(BOTH, "response")
    asked(home, "--again", "--all-failed")
    again = {name.replace("r2", "r4").replace("r1", "r3"): kind for name, kind in EVERY.items()}
    assert told(home) == again
    run(home, "memory", "verify", "--run", "own", "--deep")
    assert "nothing waits" in run(
        home, "diagnose", "--run", "own", "--model", "m", "--base-url", "http://x/v1"
    )


def test_the_cost_counts_them_and_nothing_is_written(home: Path) -> None:
    served = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--plan")
    [plan] = data(home, "diagnose", *served, "--all-failed")
    assert (plan["failures"], plan["against_answers"]) == (6, 4)
    [plan] = data(home, "diagnose", *served)
    assert (plan["failures"], plan["against_answers"]) == (2, 0)
    assert told(home) == {BOTH[0]: "response"}


def test_what_cannot_be_asked_is_refused_with_its_reason(home: Path) -> None:
    lines = [line for line in (home / "own.jsonl").read_text().splitlines() if '"known"' not in line]
    (home / "less.jsonl").write_text("\n".join(lines) + "\n")
    run(home, "ingest", "jsonl", home / "less.jsonl", "--run", "less")
    served = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--all-failed")
    said = run(home, "diagnose", "--run", "less", *served, exit=2)
    assert "no answer is known for the 2 groups in which every response failed" in said
    assert "--map answer=FIELD" in said
    (home / "none.jsonl").write_text("".join(line + "\n" for line in lines if '"both"' in line))
    run(home, "ingest", "jsonl", home / "none.jsonl", "--run", "none")
    said = run(home, "diagnose", "--run", "none", *served, exit=2)
    assert "run none has no waiting group in which every response failed" in said


def test_no_training_data_is_made_of_them_but_prompts(home: Path) -> None:
    asked(home, "--all-failed")
    rows: dict[str, list[dict[str, Any]]] = {}
    for kind in ("sft", "dpo", "prompts"):
        file = home / f"{kind}.jsonl"
        run(home, "runs", "export", "own", "--as", kind, "-o", file)
        rows[kind] = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["failure_id"] for row in rows["dpo"]] == list(BOTH)
    assert [row["failure_id"] for row in rows["sft"]] == list(BOTH)
    assert sorted((row["question_id"], row["answer"]) for row in rows["prompts"]) == [
        ("r1.q0", "7"),
        ("r1.q1", "41"),
        ("r2.q0", "7"),
        ("r2.q1", "41"),
    ]


def against(memory: Memory, sample: int, answer: str) -> FailureObserved:
    [group] = Rounds(memory).all_failed()
    [reference] = memory.artifacts.put_many([answer])
    return FailureObserved(
        failure_id=f"r1.q1.a{sample}",
        question_id="r1.q1",
        stage="solver",
        attempt=1,
        step=1,
        trajectory=group.failed[sample].trajectory,
        reference=reference,
        against="answer",
    )


@pytest.fixture
def opened(memory: Memory) -> Memory:
    """An open round of two groups; in the second all failed, and the answer is 7."""
    Recorder(memory, SETTINGS).record([step(1, a="+-", b="--")], IngestSummary())
    Rounds(memory).open_next()
    assert first_mismatch(memory.log, memory.state) is None
    return memory


def test_the_cost_of_an_open_round_counts_those_that_were_observed(opened: Memory) -> None:
    """One failure is held against a response that passed, two against the answer."""
    config = resolve(settings=["roles.diagnostician.engine=local"], environ={}).config
    before = cost(opened, config, all_failed=False)
    assert (before.failures, before.against_answers) == (1, 0)
    opened.observe([against(opened, sample, "7") for sample in range(2)])
    after = cost(opened, config, all_failed=False)
    assert (after.failures, after.against_answers) == (3, 2)


def test_another_answer_than_the_known_one_is_refused(opened: Memory) -> None:
    with pytest.raises(OutOfOrderError, match="compared with another answer"):
        opened.observe([against(opened, 0, "8")])


def test_a_question_that_some_response_passed_is_not_held_against_the_answer(opened: Memory) -> None:
    wrong = against(opened, 0, "7")
    wrong = replace(wrong, failure_id="r1.q0.a0", question_id="r1.q0")
    with pytest.raises(OutOfOrderError, match="has a response that passed"):
        opened.observe([wrong])


def test_all_failures_of_a_group_are_held_against_the_answer_or_none(opened: Memory) -> None:
    first, second = against(opened, 0, "7"), against(opened, 1, "7")
    opened.observe([first])
    found = first_mismatch(opened.log, opened.state)
    assert found is not None
    assert "has 2 failures of 3" in found[1]
    opened.observe([second])
    assert first_mismatch(opened.log, opened.state) is None
    assert first.reference == digest_of("7")


def test_a_log_that_kept_no_failures_of_such_groups_takes_the_same_files_again(memory: Memory) -> None:
    """As an earlier version recorded them."""
    rollouts = step(1, a="--")
    [event] = events_of(memory.artifacts.put_many, 1, rollouts.source, grouped(rollouts.rollouts), 0.5)
    memory.ingested([replace(event, failed=[])], 1)
    summary = IngestSummary()
    Recorder(memory, SETTINGS).record([rollouts], summary)
    assert (summary.steps, summary.new_steps) == (1, 0)
    assert first_mismatch(memory.log, memory.state) is None
