"""`diagnose --local`: causes by the four levels, through the command and the log."""

import json
import random
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import diagevo
from diagevo.config.models import Config
from diagevo.config.sources import from_settings
from diagevo.ingest import local
from diagevo.ingest.cost import Cost
from diagevo.ingest.diagnosing import DiagnosisObserver, diagnose, estimate
from diagevo.memory.events import RoundCommitted, RoundsSuperseded
from diagevo.memory.log.log import Log
from tests.cli.program import invoke
from tests.diagnosis.server import Answer, Server

FALSE = "has a step that does not hold when it is computed"
ADDS = (
    "adds where a pass multiplies (24 of 24); does not multiply two numbers of the prompt, which passes do"
    " (24 of 24 failures, 0 of 48 passes); uses another operation than the nearest passing response"
    " (24 of 24 failures, 0 of 48 passes at diagnosis)"
)
EACH = 24
"""Failures of either kind: a run of a few shows nothing that chance does not."""
CAUSE = "adds where the question asks for a product of equal groups of things"
SAID: dict[str, dict[str, Any]] = {
    "extract": {"matched_cause_id": None, "error_cause": CAUSE},
    "duplicate": {"duplicate": True, "matched_cause_id": "c1"},
    "assign": {"create_new_node": True, "new_node_label": "choosing an operation", "assigned_node": None},
}


def rollouts(step: int, *numbers: int) -> list[dict[str, Any]]:
    """Of each number a product that is added, and a sum whose result is wrong by ten."""
    found: list[dict[str, Any]] = []
    for n in numbers:
        bags = f"Ana buys {n} bags with {n + 3} apples each. How many apples?"
        sums = f"What is {n} plus {n + 20}?"
        for prompt, passed, failed in (
            (bags, f"{n} * {n + 3} = {n * (n + 3)}.", f"{n} + {n + 3} = {2 * n + 3}."),
            (sums, f"{n} + {n + 20} = {2 * n + 20}.", f"{n} + {n + 20} = {2 * n + 30}."),
        ):
            for reward, response in ((1, passed), (0, failed)):
                found.append({"step": step, "prompt": prompt, "response": response, "reward": reward})
    return found


def ingest(home: Path, *rows: dict[str, Any]) -> None:
    file = home / "own.jsonl"
    with file.open("a") as out:
        out.writelines(f"{json.dumps(row)}\n" for row in rows)
    done = run(home, "ingest", "jsonl", file, "--steps-per-round", "1")
    assert done.exit_code == 0, done.output


def run(home: Path, *command: Any) -> Any:
    return invoke(*command, "--run", "own", env={"DIAGEVO_HOME": str(home), "OPENAI_API_KEY": "none"})


def causes(home: Path) -> dict[str, int]:
    data = json.loads(run(home, "memory", "show", "--json").stdout)["data"]
    return {cause["description"]: cause["frequency"] for cause in data["causes"]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    ingest(tmp_path, *rollouts(1, *range(4, 4 + EACH)))
    return tmp_path


@pytest.mark.parametrize("digits", [400, 5000])
def test_endless_digits_and_odd_numbers_have_causes_as_others_do(tmp_path: Path, digits: int) -> None:
    """No float holds 400 digits, and Python reads no integer of 5,000."""
    rng, rows = random.Random(digits), rollouts(1, *range(4, 18))
    for row in rows:
        if not row["reward"]:
            endless = "".join(rng.choice("123456789") for _ in range(digits))
            row["response"] = f"the answer is {endless} = {endless} + 1"
    for row in rows[:2]:
        row["prompt"] += " Call it the value of x."
    rows[0]["response"] += " So x is 1.2.3"
    ingest(tmp_path, *rows)
    done = run(tmp_path, "diagnose", "--local")
    assert done.exit_code == 0, done.output
    assert sum(causes(tmp_path).values()) == len(rows) // 2


def test_where_nothing_waits_the_next_step_is_told_and_nothing_recorded(home: Path) -> None:
    assert run(home, "diagnose", "--local").exit_code == 0
    count = "SELECT count(*) AS n FROM v_event"
    before = run(home, "memory", "query", count, "--format", "csv").stdout
    told = run(home, "diagnose", "--model", "M", "--base-url", "http://127.0.0.1:9/v1")
    assert (told.exit_code, told.stdout) == (
        0,
        "own: nothing waits for a diagnosis; to ask again: diagevo diagnose --run own --again\n",
    )
    assert run(home, "memory", "query", count, "--format", "csv").stdout == before


def test_a_library_call_does_what_the_command_does(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Path(shutil.copytree(home, tmp_path_factory.mktemp("other") / "home"))
    assert run(other, "diagnose", "--local").exit_code == 0
    seen: list[str] = []

    class Watching(DiagnosisObserver):
        def superseded(self, event: RoundsSuperseded) -> None:
            seen.append(f"superseded from {event.first}")

        def begins(self, found: Cost) -> None:
            seen.append(f"{found.failures} wait")

        def committed(self, number: int, event: RoundCommitted) -> None:
            seen.append(f"round {number}: F = {event.failures}")

    keep = ("roles.diagnostician.engine=local",)
    with diagevo.open(str(home / "diagevo.db"), "own", create=False) as memory:
        config = Config.model_validate(from_settings(keep).nested(memory.state.config or {}))
        cost = estimate(memory, config)
        assert (cost.rounds, cost.failures, cost.calls) == (1, 2 * EACH, 0)
        first = diagnose(memory, config, keep=keep, observer=Watching()) or {}
        assert [(number, commit.undiagnosed) for number, commit in first.items()] == [(1, 0)]
        assert causes(home) == causes(other)
        assert sum(causes(home).values()) == first[1].failures == 2 * EACH
        assert diagnose(memory, config) is None
        assert list(diagnose(memory, config, again=True, observer=Watching()) or {}) == [2]
    waits, done = f"{2 * EACH} wait", f"F = {2 * EACH}"
    assert seen == [waits, f"round 1: {done}", "superseded from 1", waits, f"round 2: {done}"]
    assert run(other, "diagnose", "--again").exit_code == 0
    assert causes(home) == causes(other)


def test_what_only_a_played_run_has_is_not_suggested_of_an_ingested_one(home: Path) -> None:
    assert run(home, "diagnose", "--local").exit_code == 0
    for name in ("performance", "difficulty"):
        lacking = run(home, "report", "build", "--only", name)
        assert lacking.exit_code == 3
        assert "only of a run that diagevo train plays" in lacking.stderr
        assert "run: " not in lacking.stderr
    labels = run(home, "eval", "labels")
    assert "no label was compared with a true answer yet" in " ".join(labels.stderr.split())


def test_the_latest_run_is_named_where_none_was(home: Path) -> None:
    """On stderr: the file or the pipe holds the rows alone."""
    assert run(home, "diagnose", "--local").exit_code == 0
    here = {"DIAGEVO_HOME": str(home)}
    for words in (("memory", "log", "c1"), ("memory", "schedule"), ("memory", "show")):
        latest = invoke(*words, "--format", "jsonl", env=here)
        assert latest.stderr == "run own after round 1\n"
        assert latest.stdout == run(home, *words, "--format", "jsonl").stdout
        assert run(home, *words, "--format", "jsonl").stderr == ""


def test_each_cause_says_of_which_level_it_is_and_rests_on_evidence(home: Path) -> None:
    told = run(home, "diagnose", "--local")
    assert told.exit_code == 0, told.output
    assert causes(home) == {FALSE: EACH, ADDS: EACH}
    query = (
        "SELECT json_extract(payload, '$.cause_key') AS name, json_extract(payload, '$.level') AS level,"
        " json_extract(payload, '$.evidence[0].text') AS shown, json_extract(payload, '$.step.line') AS line"
        " FROM v_event WHERE type = 'FailureDiagnosed' ORDER BY position LIMIT 2"
    )
    first, second = json.loads(run(home, "memory", "query", query, "--json").stdout)["data"]
    known = "3:-§a product of a given number and a given number"
    assert (first["name"].partition("\n")[0], first["level"], first["line"]) == (known, 3, 0)
    assert first["shown"] == 'wrote "4 + 7 = 11" where a pass has "4 * 7 = 28": «4 + 7 = 11».'
    assert (second["name"], second["level"]) == ("2:false", 2)
    assert second["shown"] == "does not hold: 4 + 24 = 38"
    assert run(home, "memory", "verify", "--deep").exit_code == 0


def test_later_rounds_join_a_group_and_the_engine_is_remembered(home: Path) -> None:
    assert run(home, "diagnose", "--local").exit_code == 0
    before = causes(home)
    ingest(home, *rollouts(2, 7, 8))
    assert run(home, "diagnose").exit_code == 0
    assert causes(home) == {description: frequency + 2 for description, frequency in before.items()}
    assert all(" at diagnosis)" in each for each in before if " failures, " in each)  # of the first round
    assert run(home, "memory", "verify", "--deep").exit_code == 0


def test_a_language_model_supersedes_the_groups_and_they_it(home: Path) -> None:
    assert run(home, "diagnose", "--local").exit_code == 0
    grouped = causes(home)

    def behave(request: dict[str, Any], before: int) -> Answer:
        said = SAID[request["response_format"]["json_schema"]["name"]]
        known = re.search(r"^- (c\d+):", request["messages"][1]["content"], re.MULTILINE)
        if "duplicate" in said and known is not None:
            said = {**said, "matched_cause_id": known[1]}
        return Answer(json.dumps(said))

    with Server(behave) as server:
        asked = run(home, "diagnose", "--again", "--model", "m", "--base-url", server.url)
    assert asked.exit_code == 0, asked.output
    assert list(causes(home)) == [CAUSE]
    assert run(home, "diagnose", "--again", "--local").exit_code == 0
    assert causes(home) == grouped
    assert run(home, "memory", "verify", "--deep").exit_code == 0


@pytest.mark.parametrize("answer", [None, "7"], ids=["rewards alone", "known answers"])
def test_one_response_a_question_is_held_against_what_passed_elsewhere(
    tmp_path: Path, answer: str | None
) -> None:
    """Twenty bags are multiplied and pass, twenty others are added and fail: no question has both."""
    rows = []
    for n in range(20):
        for reward, sign, a in ((1, "*", n + 3), (0, "+", n + 53)):
            text = f"{a} {sign} 9 = {a * 9 if reward else a + 9}."
            row = {"step": 1, "prompt": f"Ana buys {a} bags with 9 apples each. How many apples?"}
            rows.append({**row, "response": text, "reward": reward, **({"answer": answer} if answer else {})})
    ingest(tmp_path, *rows)
    assert run(tmp_path, "diagnose", "--local").exit_code == 0
    [(words, number)] = causes(tmp_path).items()
    assert (number, "does not multiply" in words or "leaves out" in words or "has" in words) == (20, True)
    shown = run(tmp_path, "memory", "why", "r1.q21.a0", "--full").output
    assert "passed, on a prompt like this; no response passed" in shown
    story = json.loads(run(tmp_path, "memory", "why", "r1.q21.a0", "--json").stdout)["data"]
    assert story["against"] == "near"
    assert run(tmp_path, "memory", "verify", "--deep").exit_code == 0


def test_causes_and_their_examples_do_not_hang_on_the_order_of_rows(tmp_path: Path) -> None:
    """A prompt that came back in more steps than are learned from, responses that are equally near, in three
    orders."""
    rows = rollouts(1, *range(2, 2 + EACH)) + [
        {"step": step, "prompt": "What is 5 plus 6?", "response": f"{text} {step}.", "reward": reward}
        for step in range(1, 9)
        for text, reward in (("It is 11, as asked", 1), ("It is 11, as said", 1), ("No, 10", 0))
    ]
    found = []
    for seed in range(3):
        home = tmp_path / f"{seed}"
        home.mkdir()
        random.Random(seed).shuffle(rows)
        # One round whatever the order: a failure is told apart by its texts.
        ingest(home, *({**row, "step": 1, "group": f"{row['step']} {row['prompt']}"} for row in rows))
        assert run(home, "diagnose", "--local").exit_code == 0
        with sqlite3.connect(home / "diagevo.db") as log:
            said = log.execute(
                "SELECT f.trajectory, json_extract(e.payload, '$.description'),"
                " json_extract(e.payload, '$.pair'), json_extract(e.payload, '$.evidence')"
                " FROM v_event e JOIN v_failure f ON f.failure_id = json_extract(e.payload, '$.failure_id')"
                " WHERE e.type = 'FailureDiagnosed'"
            ).fetchall()
        found.append(sorted(said, key=str))
    assert any(description for _, description, *_ in found[0])
    assert found[1:] == found[:1] * 2


@pytest.mark.parametrize("stops", range(1, 8))
def test_stopped_after_any_append_it_goes_on_to_the_same_causes(
    home: Path, stops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a full disk or Ctrl-C would stop it: the n-th append of the diagnosis is the last."""
    whole = home.with_name(f"{home.name}-whole")
    shutil.copytree(home, whole)
    assert run(whole, "diagnose", "--local").exit_code == 0
    append, done = Log.append, 0

    def once(self: Log, *given: Any, **more: Any) -> Any:
        nonlocal done
        done += 1
        if done > stops:
            raise KeyboardInterrupt
        return append(self, *given, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Log, "append", once)
        patched.setattr(local, "BATCH", 1)
        stopped = run(home, "diagnose", "--local")
    assert stopped.exit_code != 0 or done <= stops
    assert run(home, "diagnose", "--local").exit_code == 0
    assert causes(home) == causes(whole)
    assert run(home, "memory", "verify", "--deep").exit_code == 0


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("crash_case_only", {}),
        ("noise_5", {}),
        (
            "identical_failures",
            {"multiplies by 10 (7 of 7 failures, 0 of 1 passes at diagnosis)": 7},
        ),
        (
            "agent_greeting",
            {
                'wrote "dearest" where a pass has "cheapest" (3 of 3); leaves out `cheapest`, which passes'
                " have (3 of 3 failures, 0 of 3 passes); has `dearest`"
                " (3 of 3 failures, 0 of 3 passes at diagnosis)": 3
            },
        ),
        ("agent_nofinal", {"ends with a tool call and gives no answer": 48}),
    ],
)
def test_files_that_once_failed_have_the_causes_that_they_should(
    tmp_path: Path, name: str, found: dict[str, int]
) -> None:
    file = Path(__file__).parents[3] / "shared" / "data" / "faults" / f"{name}.jsonl"
    if not file.is_file():
        pytest.skip("the shared test data are not here")
    assert run(tmp_path, "ingest", "jsonl", file).exit_code == 0
    assert run(tmp_path, "diagnose", "--local").exit_code == 0
    assert causes(tmp_path) == found


@pytest.mark.parametrize(
    "given", [("--model", "m"), ("--again", "--dry-run"), ("--max-calls", "3")], ids=lambda given: given[0]
)
def test_options_of_a_model_are_refused(home: Path, given: tuple[str, ...]) -> None:
    assert run(home, "diagnose", "--local", *given).exit_code == 2


def test_a_run_that_plays_refuses_it_before_it_starts(tmp_path: Path) -> None:
    told = run(tmp_path, "train", "--set", "roles.diagnostician.engine=local", "--rounds", "1")
    assert (told.exit_code, "failures of ingested runs" in told.stderr) == (2, True), told.output


def test_a_part_that_is_done_is_not_said_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line names what is computed then; nothing is waited for, as nobody is asked."""
    monkeypatch.setattr("diagevo.cli.render.console.SILENCE", 0.0)
    rows = [
        {"prompt": f"p{n}", "response": f"it is {n + (k > 0)}", "reward": int(k == 0)}
        for n in range(300)
        for k in range(3)
    ]
    (tmp_path / "own.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    env = {"DIAGEVO_HOME": str(tmp_path)}
    assert invoke("ingest", "jsonl", tmp_path / "own.jsonl", "--run", "own", env=env).exit_code == 0
    told = invoke("diagnose", "--run", "own", "--local", env=env).stderr.splitlines()
    assert "waiting" not in " ".join(told)
    last = max(place for place, line in enumerate(told) if line == "extraction: 600 of 600")
    assert [line for line in told[last + 1 :] if line.startswith("extraction: ")] == []
    assert any(line.startswith("settlement: ") for line in told[last + 1 :])
