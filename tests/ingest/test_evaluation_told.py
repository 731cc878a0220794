"""An evaluation is told without a curriculum: its causes, what they rest on, and what is left."""

import json
from pathlib import Path

import pytest

from tests.cli.program import invoke

CURRICULUM = ("ε", "F =", "p₂", "Active", "ACTIVE", "Mastered", "Did it help", "deduplication", "first cause")


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
    for words in (("memory", "show"), ("memory", "why", "c1"), ("runs", "show")):
        said += run(home, *words, *(() if words[0] == "runs" else ("--run",)), "own")
    assert not [word for word in CURRICULUM if word in said], said
    run(home, "view", "--export", str(home / "pages"), "--run", "own")
    for page in ("index", "causes", "causes/c1"):
        html = (home / "pages" / "own" / f"{page}.html").read_text("utf-8")
        assert not [word for word in CURRICULUM[:-2] if word in html], page
    assert "Failures by cause, of all 16 failures" in (home / "pages" / "own" / "index.html").read_text()


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
