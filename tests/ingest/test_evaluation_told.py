"""An evaluation is told without a curriculum: its causes, what they rest on, and what is left."""

import json
from pathlib import Path

import pytest

from tests.cli.program import invoke

CURRICULUM = (
    *("ε", "F =", "p₁", "p₂", "Active", "ACTIVE", "Mastered", "Did it help", "deduplication", "first cause"),
    *("kept", "too easy", "too_easy", " head", "eactivat", "urriculum"),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen questions, three responses each: what fails leaves out `distinct`, in other words each time."""
    home = tmp_path_factory.mktemp("told")
    opened = ("Sure, here it is:", "The query:", "One way to write it:", "This should work:")
    with (home / "own.jsonl").open("w") as out:
        for number in range(16):
            for sample in range(3):
                what = "count(x)" if sample == 2 else "count(distinct x)"
                text = f"{opened[(number + sample) % 4]}\nselect {what} from t{number}"
                row = {"prompt": f"how many x has t{number}?", "response": text, "reward": int(sample < 2)}
                out.write(json.dumps(row) + "\n")
    run(home, "ingest", "jsonl", str(home / "own.jsonl"), "--run", "own")
    return home


def run(home: Path, *words: str) -> str:
    done = invoke(*words, env={"DIAGEVO_HOME": str(home), "COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    return done.stdout + done.stderr


def test_no_screen_and_no_page_of_it_has_a_curriculum(home: Path) -> None:
    said = run(home, "diagnose", "--run", "own", "--local")
    assert said.count("16 of 16 failures have 1 cause") == 1
    for words in (("memory", "show"), ("memory", "why", "c1"), ("memory", "why", "r1.q0"), ("runs", "show")):
        said += run(home, *words, *(() if words[0] == "runs" else ("--run",)), "own")
    said += run(home, "runs", "list")
    assert not [word for word in CURRICULUM if word in said], said
    run(home, "view", "--export", str(home / "pages"), "--run", "own")
    for page in (
        "index",
        "causes",
        "causes/c1",
        "rounds/1",
        "questions/r1.q0",
        "failures/r1.q0.a2",
        "verify",
    ):
        html = (home / "pages" / "own" / f"{page}.html").read_text("utf-8")
        text = html.partition("<body>")[2]
        assert not [word for word in CURRICULUM if word in text], page
    assert "Mastered" not in (home / "pages" / "index.html").read_text("utf-8")
    assert "Failures by cause, of all 16 failures" in (home / "pages" / "own" / "index.html").read_text()


def test_it_says_what_passed_with_an_interval_and_what_to_do_next(tmp_path: Path) -> None:
    """Wilson's interval over four prompts, worked by hand: (1/2 + z²/8 ± z √(1/16 + z²/64)) / (1 + z²/4) with
    z² = 3.8415; of two prompts, where all passed, from 1 / (1 + z²/2)."""
    with (tmp_path / "own.jsonl").open("w") as out:
        for number in range(4):
            for model in ("a<b>", "b"):
                row = {"prompt": f"add {number}", "response": f"{number}", "reward": int(model == "b")}
                tag = ["even", "odd"][number % 2]
                out.write(json.dumps(row | {"model": model, "tags": [tag]}) + "\n")
    run(tmp_path, "ingest", "jsonl", str(tmp_path / "own.jsonl"), "--run", "own")
    shown = run(tmp_path, "runs", "show", "own")
    assert "4 of 8 responses passed, to 4 prompts: 50.0% (15.0% to 85.0%)" in shown
    rows = {tuple(line.split()) for line in shown.splitlines()}
    assert ("model", "a<b>", "0.000", "0.000", "0.490", "0", "4", "4") in rows
    assert ("model", "b", "1.000", "0.510", "1.000", "4", "4", "4") in rows
    assert ("tag", "even", "0.500", "0.095", "0.905", "2", "4", "2") in rows
    assert "next: diagevo diagnose --run own --local  # what the failures have in common" in shown
    run(tmp_path, "view", "--export", str(tmp_path / "pages"))
    page = (tmp_path / "pages" / "own" / "index.html").read_text("utf-8")
    assert "50.0% (15.0% to 85.0%)" in page
    assert "a&lt;b&gt;" in page
    assert 'data-copy="diagevo diagnose --run own --local"' in page
    assert page.index("Pass rate by model") < page.index("Pass rate by tag")


def test_a_failure_is_told_by_what_its_cause_rests_on(home: Path) -> None:
    """The responses begin in other words; that is no difference to name."""
    run(home, "diagnose", "--run", "own", "--local")
    for words in (("c1",), ("r1.q3.a2",), ("r1.q3",)):
        told = run(home, "memory", "why", *words, "--run", "own")
        assert 'left out "distinct"; a pass has: ' in told
        assert "first difference" not in told


def test_what_all_prompts_begin_with_is_left_out(tmp_path: Path) -> None:
    """Examples before each question would fill the line."""
    head = "".join(f"Q: what is {n} + {n}?\nA: {2 * n}\n\n" for n in range(12))
    with (tmp_path / "own.jsonl").open("w") as out:
        for number in range(4):
            for reward in (1, 0):
                text = f"{number} + 7 = {number + 8 - reward}"
                row = {"prompt": f"{head}Q: add 7 to {number}!", "response": text, "reward": reward}
                out.write(json.dumps(row) + "\n")
    run(tmp_path, "ingest", "jsonl", str(tmp_path / "own.jsonl"), "--run", "own")
    run(tmp_path, "diagnose", "--run", "own", "--local")
    told = run(tmp_path, "memory", "why", "c1", "--run", "own")
    assert "…Q: add 7 to 0!: does not hold: 0 + 7 = 8" in told
    assert "what is 1 + 1" not in told
