"""What a judge, a test log or a database says of a response: shown with it, and a cause by itself."""

import json
import random
from pathlib import Path

import pytest

from tests.ingest.test_local import causes, run

WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo")
SAID = ("column {} does not exist", "division by zero in row {}")


def rows(rng: random.Random, *, dealt: bool) -> list[dict[str, object]]:
    """Responses at random, half of which failed, with what the database said. `dealt`: of all alike."""
    found: list[dict[str, object]] = []
    for prompt in range(40):
        for place in range(4):
            failed = place < 2
            text = "the rows are there" if not (failed or dealt) else SAID[rng.randrange(2)]
            found.append(
                {
                    "prompt": f"Write query {prompt}.",
                    "response": " ".join(rng.choices(WORDS, k=12)),
                    "reward": 0 if failed else 1,
                    "feedback": text.format(rng.choice(WORDS)),
                }
            )
    return found


def ingested(home: Path, found: list[dict[str, object]]) -> Path:
    file = home / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in found), encoding="utf-8")
    assert run(home, "ingest", "jsonl", file).exit_code == 0
    return file


def test_what_a_database_said_names_a_cause_by_itself(tmp_path: Path) -> None:
    """Whose failures are counted here by a search in what the file says."""
    told = rows(random.Random(1), dealt=False)
    ingested(tmp_path, told)
    assert run(tmp_path, "diagnose", "--local").exit_code == 0
    failed = [str(each["feedback"]) for each in told if each["reward"] == 0]
    found = causes(tmp_path)
    for words in ("does not exist", "division by zero in row"):
        held = sum(words in each for each in failed)
        sentence = f"its feedback says `{words}` ({held} of {held} failures, 0 of 80 passes at diagnosis)"
        assert found.pop(sentence) == held
    assert found == {}


@pytest.mark.parametrize("seed", range(3))
def test_what_is_said_of_passes_alike_names_nothing(tmp_path: Path, seed: int) -> None:
    ingested(tmp_path, rows(random.Random(seed), dealt=True))
    run(tmp_path, "diagnose", "--local")
    assert causes(tmp_path) == {}


def test_each_failure_shows_what_was_said_of_it(tmp_path: Path) -> None:
    told = rows(random.Random(2), dealt=False)
    file = ingested(tmp_path, told)
    assert run(tmp_path, "diagnose", "--local").exit_code == 0
    query = "SELECT failure_id, trajectory, feedback FROM v_trajectory WHERE run_id = :run"
    found = json.loads(run(tmp_path, "memory", "query", query, "--json").stdout)["data"]
    said = {str(each["response"]): each["feedback"] for each in told if each["reward"] == 0}
    assert {each["trajectory"]: each["feedback"] for each in found} == said
    one = found[7]
    for words in ((), ("--full",), ("--json",)):
        shown = run(tmp_path, "memory", "why", one["failure_id"], *words)
        assert one["feedback"] in " ".join(shown.stdout.split())
    pages = tmp_path / "pages"
    assert run(tmp_path, "view", "--export", pages).exit_code == 0
    [page] = pages.glob(f"**/{one['failure_id']}.html")
    assert one["feedback"] in page.read_text(encoding="utf-8")
    assert run(tmp_path, "ingest", "jsonl", file).exit_code == 0, "the same again is fine"
    assert run(tmp_path, "memory", "verify", "--deep").exit_code == 0
