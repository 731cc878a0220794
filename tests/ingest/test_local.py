"""`diagnose --local`: failures grouped by likeness, through the command and the log."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from diagevo.diagnosis.grouping import FailedResponse, group, parting
from tests.cli.program import invoke
from tests.diagnosis.server import Answer, Server

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
    ingest(tmp_path, *rollouts(1, 4, 5, 6))
    return tmp_path


def test_where_nothing_waits_the_next_step_is_told_and_nothing_recorded(home: Path) -> None:
    assert run(home, "diagnose", "--local").exit_code == 0
    count = "SELECT count(*) AS n FROM v_event"
    before = run(home, "memory", "query", count, "--format", "csv").stdout
    told = run(home, "diagnose", "--model", "M", "--base-url", "http://127.0.0.1:9/v1")
    assert (told.exit_code, told.stdout) == (
        0,
        "own: nothing waits for a diagnosis; to ask once more: diagevo diagnose --run own --again\n",
    )
    assert run(home, "memory", "query", count, "--format", "csv").stdout == before


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


def test_each_group_is_a_cause_that_says_how_it_was_made(home: Path) -> None:
    told = run(home, "diagnose", "--local")
    assert told.exit_code == 0, told.output
    assert "not named by a model" in told.stderr
    first, second = sorted(causes(home).items())
    assert (first[1], second[1]) == (3, 3)
    assert first[0].startswith("grouped: gets another result in a step (plus)")
    assert second[0].startswith("grouped: takes another step (apples, ana, bags), as in: 4 + 7 = 11.")
    assert "grouped: " in run(home, "memory", "why", "c1").stdout
    assert run(home, "memory", "verify", "--deep").exit_code == 0


class ByMeaning:
    """A sentence model that knows two meanings, by a word of each question."""

    name, dimension, revision = "by-meaning", 2, "1"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        adds = [any(word in text for word in ("plus", "more")) for text in texts]
        return np.array([[1, 0] if each else [0, 1] for each in adds], np.float32)


def test_a_sentence_model_joins_what_differs_in_words_alone() -> None:
    """They part alike, which is .6 of a cosine; the questions have no word in common."""
    asked = ["four plus twenty-four", "Ana finds more coins", "halve sixty"]
    failures = [FailedResponse(text, "so 4 + 24 = 28.", "so 4 + 24 = 38.") for text in asked]
    assert group(failures, {}) == [None, None, None]
    joined = group(failures, {}, ByMeaning())
    assert joined[0] is not None
    assert joined == [joined[0], joined[0], None]


def test_later_rounds_join_a_group_and_the_engine_is_remembered(home: Path) -> None:
    assert run(home, "diagnose", "--local").exit_code == 0
    before = causes(home)
    ingest(home, *rollouts(2, 7, 8))
    assert run(home, "diagnose").exit_code == 0
    assert causes(home) == {description: frequency + 2 for description, frequency in before.items()}
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


def test_where_no_two_are_alike_nothing_is_committed(tmp_path: Path) -> None:
    ingest(tmp_path, *rollouts(1, 4))
    told = run(tmp_path, "diagnose", "--local")
    assert (told.exit_code, "no two of the 2 failures" in told.stderr) == (3, True), told.output
    assert json.loads(run(tmp_path, "runs", "show", "--json").stdout)["data"]["rounds"] == []


@pytest.mark.parametrize(
    "given", [("--model", "m"), ("--again", "--dry-run"), ("--max-calls", "3")], ids=lambda given: given[0]
)
def test_options_of_a_model_are_refused(home: Path, given: tuple[str, ...]) -> None:
    assert run(home, "diagnose", "--local", *given).exit_code == 2


def test_a_run_that_plays_refuses_it_before_it_starts(tmp_path: Path) -> None:
    told = run(tmp_path, "train", "--set", "roles.diagnostician.engine=local", "--rounds", "1")
    assert (told.exit_code, "failures of ingested runs" in told.stderr) == (2, True), told.output


@pytest.mark.parametrize(
    ("passed", "failed", "kind", "steps"),
    [
        ("2*3=6;6+1=7", "2*3=6;6+1=8", "result", ("6+1=7", "6+1=8")),
        ("2*3=6;6+1=7", "2*3=6;5+1=6", "numbers", ("6+1=7", "5+1=6")),
        ("2*3=6;6+1=7", "2+3=5;5+1=6", "step", ("2*3=6", "2+3=5")),
        ("2*3=6;6+1=7", "2*3=6", "stops", ("6+1=7", "no further step")),
        (
            "First this. Then that.",
            "First this. Then that. And more.",
            "goes on",
            ("no further step", "And more."),
        ),
        ("a\nb()", "a\nc()", "step", ("b()", "c()")),
        ("", "", "stops", ("no further step", "no further step")),
        (
            "The discount is 25% of $80 = $20. You pay 80 - 20 = 60. So the answer is 60.",
            "The shirt costs $80. The discount is 25% of 80, which is 20. So the answer is 20.",
            "step",
            ("You pay 80 - 20 = 60.", "So the answer is 20."),
        ),
        (
            "The shirt costs $80. The discount is 25% of $80 = $20. You pay 80 - 20 = 60. So it is 60.",
            "The shirt costs $80. The discount is 25% of 80, which is 20. So the answer is 20.",
            "step",
            ("You pay 80 - 20 = 60.", "So the answer is 20."),
        ),
        ("2*3=6;6+4=10;10-1=9", "2*3=6;10-1=9;9+6=15", "step", ("6+4=10", "10-1=9")),
    ],
)
def test_how_a_failure_parts_from_what_passed(
    passed: str, failed: str, kind: str, steps: tuple[str, str]
) -> None:
    found = parting(FailedResponse("?", passed, failed))
    assert (found.kind, (found.passed, found.failed)) == (kind, steps)


def test_grouping_is_the_same_again_and_keeps_what_has_a_cause() -> None:
    failures = [
        FailedResponse(f"What is {n} plus {m}?", f"{n} + {m} = {n + m}", f"{n} + {m} = {n + m + 10}")
        for n in range(3, 7)
        for m in (20, 30)
    ]
    assert group(failures, {}) == group(failures, {})
    joined = group(failures, {0: "known", 1: "known"})
    assert joined[:2] == [None, None]
    assert {each[0] for each in joined[2:] if each is not None} == {"known"}
    assert group([], {}) == []
