"""What a served model is shown of an ingested failure, what it is not asked, and how its reply is checked."""

import json
from pathlib import Path
from typing import Any

import pytest

from diagevo.diagnosis.levels.step_location import contradicted
from tests.cli.program import invoke
from tests.diagnosis.server import Answer, Server

NEAR = "Each box holds 6 pens.\nFirst 4 * 6 = 24.\nThen 24 + 2 = 26.\n#### 26"
FAR = "Let me think about it in another way altogether.\nAdd them all: 6 + 6 + 6 + 6 + 2 = 26.\n#### 26"
FALSE = "Each box holds 6 pens.\nFirst 4 * 6 = 25.\nThen 25 + 2 = 27.\n#### 27"
DIAGNOSED = """SELECT json_extract(payload, '$.flags') AS flags FROM v_event
    WHERE run_id = :run AND type = 'FailureDiagnosed'"""
CAUSE = "multiplies two small whole numbers wrongly when it counts what several boxes hold together"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Four questions: two passes, of which the second is near to the failure, and one that is empty."""
    with (tmp_path / "own.jsonl").open("w") as out:
        for number in range(4):
            prompt = f"Box {number}: four boxes of 6 pens and 2 more. How many pens?"
            for response, reward in ((FAR, 1), (NEAR, 1), (FALSE, 0), ("", 0)):
                out.write(json.dumps({"prompt": prompt, "response": response, "reward": reward}) + "\n")
    assert run(tmp_path, "ingest", "jsonl", str(tmp_path / "own.jsonl"), "--run", "own") is not None
    return tmp_path


def run(home: Path, *words: str) -> str:
    done = invoke(*words, env={"DIAGEVO_HOME": str(home), "OPENAI_API_KEY": "none", "COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout + done.stderr


def asked(home: Path, server: Server, *more: str) -> str:
    return run(home, "diagnose", "--run", "own", "--model", "m", "--base-url", server.url, *more)


def reply(step: str | None) -> Any:
    told = {"wrong_step": step, "matched_cause_id": None, "error_cause": CAUSE}
    kinds = {
        "extract": json.dumps(told),
        "duplicate": '{"duplicate": false, "matched_cause_id": null}',
        "assign": json.dumps({"create_new_node": True, "new_node_label": CAUSE, "assigned_node": None}),
        "merge": '{"merge": false, "merged_label": null}',
    }
    return lambda request, before: Answer(kinds[request["response_format"]["json_schema"]["name"]])


def test_it_sees_the_nearest_pass_and_what_was_computed_and_is_not_asked_about_level_one(home: Path) -> None:
    """Of eight failures four are empty: the plan is for the other four, and four are extracted."""
    with Server(reply(None)) as server:
        [plan] = json.loads(asked(home, server, "--plan", "--json").partition("\n}")[0] + "\n}")["data"]
        assert (plan["failures"], plan["calls"]) == (4, 12)
        asked(home, server)
        texts = [
            request["messages"][1]["content"]
            for request in server.requests
            if request["response_format"]["json_schema"]["name"] == "extract"
        ]
    assert len(texts) == 4
    for text in texts:
        assert NEAR in text
        assert "another way altogether" not in text
        computed = text.partition("# What Was Computed")[2]
        assert "First 4 * 6 = 25.: does not hold" in computed
    shown = run(home, "memory", "show", "--run", "own")
    assert "is empty" in shown
    assert "as it was written" in run(home, "memory", "verify", "--deep", "--run", "own")


def test_a_cause_whose_step_passed_too_is_marked(home: Path) -> None:
    with Server(reply("Each box holds 6 pens.")) as server:
        asked(home, server)
    told = run(home, "memory", "why", "r1.q0.a2", "--run", "own")
    assert "[step_passed]" in told
    assert "but        the response that passed has the step that it names" in told
    assert "CONTRADICTED: the response that passed has the step" in run(
        home, "memory", "why", "r1.q0", "--run", "own"
    ) + run(home, "memory", "why", "c2", "--run", "own")


def test_a_contradicted_cause_is_marked_wherever_it_stands(home: Path) -> None:
    with Server(reply("Each box holds 6 pens.")) as server:
        first = asked(home, server)
    why = "the response that passed has the step that it names"
    data = json.loads(run(home, "memory", "query", DIAGNOSED, "--json", "--run", "own"))["data"]
    flagged = sum("step_passed" in each["flags"] for each in data)
    assert flagged
    pages = home / "pages"
    run(home, "view", "--export", str(pages), "--run", "own")
    for shown in (
        first,
        run(home, "memory", "show", "--run", "own"),
        run(home, "memory", "why", "c2", "--run", "own"),
        (pages / "own" / "causes" / "c2.html").read_text("utf-8"),
    ):
        assert f"CONTRADICTED in {flagged} of {flagged}: {why}" in " ".join(shown.split())


def test_a_dry_run_asks_as_it_was_asked(home: Path) -> None:
    """The requests for the four extractions are the same again."""

    def extractions(server: Server) -> set[str]:
        kinds = [(each, each["response_format"]["json_schema"]["name"]) for each in server.requests]
        return {each["messages"][1]["content"] for each, kind in kinds if kind == "extract"}

    with Server(reply(None)) as server:
        asked(home, server)
        before = extractions(server)
        server.requests.clear()
        asked(home, server, "--again", "--dry-run")
        assert extractions(server) == before
    assert len(before) == 4


@pytest.mark.parametrize(
    ("named", "mark"),
    [
        ("First 4 * 6 = 25.", None),
        ("Then 25 + 2 = 27.", "step_holds"),
        ("Each box holds 6 pens.", "step_passed"),
        ("It forgets the rest.", "no_such_step"),
        ("  first 4*6 =  25 ", None),
    ],
)
def test_what_contradicts_a_step(named: str, mark: str | None) -> None:
    """25 + 2 is 27, and 4 * 6 is not 25: who calls the former wrong is contradicted."""
    assert contradicted(named, FALSE, NEAR, "First 4 * 6 = 25.") == mark
