"""What passed of another trainer's rollouts, on every screen: by hand, and against the files themselves."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from diagevo.memory.events import GroupIngested
from diagevo.memory.history import History
from diagevo.memory.memory import Memory
from diagevo.memory.read.pass_rates import last_causes, pass_rates
from diagevo.memory.read.runs import run_story
from tests.cli.program import invoke
from tests.ingest.conftest import DATA, ingest_verl, step
from tests.ingest.test_recording import diagnose, record

FILES = sorted((DATA / "verl" / "rollouts").glob("*.jsonl"))


@pytest.fixture
def history(memory: Memory) -> Iterator[History]:
    """Round 1: a fails three times by its sign, b twice and thrice by its carry; c passes. Step 3 waits."""
    record(memory, step(1, a="+---", b="++--", c="++"), step(2, b="+---"))
    diagnose(memory, {"a": "sign", "b": "carry"})
    record(memory, step(3, d="----"))
    with closing(History(memory.database, memory.run_id)) as history:
        yield history


def test_steps_are_counted_whether_their_round_is_played_or_waits(history: History) -> None:
    found = pass_rates(history)
    assert found is not None
    assert [(s.step, s.round, s.groups, s.all_passed, s.contrast, s.all_failed) for s in found.steps] == [
        (1, 1, 3, 1, 2, 0),
        (2, 1, 1, 0, 1, 0),
        (3, 2, 1, 0, 0, 1),
    ]
    rates = [(s.rollouts, s.passes, s.pass_rate) for s in found.steps]
    assert rates == [(10, 5, 0.5), (4, 1, 0.25), (4, 0, 0.0)]


def test_a_cause_has_its_share_of_the_failures_and_the_pass_rate_of_its_groups(history: History) -> None:
    """Of 12 that failed 5 are of c2, in two groups of four of which 2 and 1 passed; 3 of c1, in one."""
    found = pass_rates(history)
    assert found is not None
    told = [(c.cause_id, c.description, c.failures, c.share, c.groups, c.pass_rate) for c in found.causes]
    assert told == [("c2", "carry", 5, 5 / 12, 2, 3 / 8), ("c1", "sign", 3, 3 / 12, 1, 1 / 4)]
    assert found.failures == 8


def test_prompts_that_fell_are_told_with_the_cause_of_their_last_failures(history: History) -> None:
    """b: 2 of 4, then 1 of 4; a, c and d came once."""
    found = pass_rates(history)
    assert found is not None
    assert (found.prompts, found.dropped) == (1, 1)
    [drop] = found.drops
    assert (drop.prompt, drop.cause_id) == ("b", "c2")
    assert (drop.first_step, drop.first_pass_rate, drop.last_step, drop.last_pass_rate) == (1, 0.5, 2, 0.25)


def test_a_round_has_the_rate_of_all_its_rollouts(history: History) -> None:
    """5 of 10 and 1 of 4: 6 of 14."""
    [line] = run_story(history).rounds
    assert (line.rollouts, line.passes, line.pass_rate) == (14, 6, 6 / 14)


def test_a_run_of_ones_own_has_no_pass_rate(memory: Memory) -> None:
    memory.open_round(1)
    with closing(History(memory.database, memory.run_id)) as history:
        assert (history.ingested, pass_rates(history)) == (None, None)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    ingest_verl(home)
    return home


def said(home: Path, *arguments: str | Path) -> str:
    done = invoke(*arguments, env={"DIAGEVO_HOME": str(home)})
    assert done.exit_code == 0, done.stderr
    return done.stdout + done.stderr


def data(home: Path, *arguments: str) -> Any:
    done = invoke(*arguments, "--json", env={"DIAGEVO_HOME": str(home)})
    return json.loads(done.stdout)["data"]


def passed() -> list[tuple[int, int]]:
    """Of each file how many lines there are, and how many have the score of a right answer."""
    scores = [[json.loads(line)["score"] for line in file.read_text().splitlines()] for file in FILES]
    return [(len(found), sum(score >= 0.5 for score in found)) for found in scores]


def test_the_screen_counts_what_the_files_hold(home: Path) -> None:
    files = passed()
    rates = data(home, "runs", "show", "v")["pass_rates"]
    assert [(s["rollouts"], s["passes"]) for s in rates["steps"]] == files
    asked = "SELECT rollouts, passes FROM v_step ORDER BY step"
    assert [tuple(row.values()) for row in data(home, "memory", "query", asked, "--run", "v")] == files
    rounds = [(line["rollouts"], line["passes"]) for line in data(home, "runs", "show", "v")["rounds"]]
    assert rounds == [tuple(map(sum, zip(*files[n : n + 2], strict=True))) for n in (0, 2, 4)]


def test_the_causes_of_the_screen_are_those_of_sql(home: Path) -> None:
    asked = (
        "SELECT cause_id, count(*) AS failures, count(DISTINCT t.question_id) AS groups"
        " FROM v_trajectory t WHERE cause_id IS NOT NULL GROUP BY cause_id"
    )
    by_sql = Counter({row["cause_id"]: row["failures"] for row in data(home, "memory", "query", asked)})
    rates = data(home, "runs", "show", "v")["pass_rates"]
    assert {one["cause_id"]: one["failures"] for one in rates["causes"]} == by_sql
    counted = data(home, "memory", "query", "SELECT count(*) AS n FROM v_failure")[0]["n"]
    assert rates["failures"] == counted
    for one in rates["causes"]:
        groups = (
            "SELECT sum(first) AS passes, sum(responses) AS rollouts FROM v_candidate WHERE question_id IN"
            f" (SELECT question_id FROM v_trajectory WHERE cause_id = '{one['cause_id']}')"
        )
        [row] = data(home, "memory", "query", groups)
        assert one["pass_rate"] == row["passes"] / row["rollouts"]
        assert one["share"] == one["failures"] / counted


@pytest.mark.parametrize(
    "command",
    [
        *("runs show v", "runs diff v..v", "runs list"),
        pytest.param("view --export SITE", marks=pytest.mark.slow),
    ],
)
def test_no_screen_says_of_another_trainers_rollouts_what_holds_for_the_arithmetic_world(
    home: Path, command: str, tmp_path: Path
) -> None:
    shown = said(home, *command.replace("SITE", str(tmp_path / "site")).split())
    shown += "".join(file.read_text("utf-8") for file in tmp_path.rglob("*.html"))
    for untrue in ("free exploration", "free questions", "arithmetic world", "between stages", "attempt 1"):
        assert untrue not in shown, untrue


def test_the_screen_of_a_run_shows_rates_and_what_reads_them(home: Path) -> None:
    shown = said(home, "runs", "show", "v")
    assert "rollouts       of another trainer, the last from 6.jsonl" in shown
    assert "a reward of 0.5 passes, θ_dup = 0.30: profile embedded" in shown
    assert "mean@k" not in shown
    assert "labels true" not in shown
    assert "9 more causes: diagevo runs show v --json" in shown


def test_two_runs_are_held_beside_each_other_by_their_pass_rates(home: Path) -> None:
    [first, *_] = data(home, "runs", "diff", "v..v")["learnt"]
    rollouts, passes = (sum(both) for both in zip(*passed()[:2], strict=True))
    assert first["pass_rate"] == [passes / rollouts] * 2
    shown = said(home, "runs", "diff", "v..v")
    assert "pass rate" in shown
    assert "mean@k" not in shown


def test_a_prompt_that_came_back_is_not_said_to_be_drawn(home: Path) -> None:
    cause = said(home, "memory", "why", "c1", "--run", "v")
    assert "1 prompt that aims at it, 1 with passes and failures, mean pass rate 0.500 < 0.70" in cause
    assert "targeted" not in cause
    failure = said(home, "memory", "why", "r1.q0.a1", "--full", "--run", "v")
    assert "step 1 of its trainer" in failure
    assert "reference, which passed" in failure
    assert "agreeing with the label" not in failure


def last_rates(files: list[Path]) -> dict[str, float]:
    """Of each prompt in the last of the files that has it."""
    found: dict[str, float] = {}
    for file in files:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for prompt in {row["input"] for row in rows}:
            scores = [row["score"] >= 0.5 for row in rows if row["input"] == prompt]
            found[prompt.strip()] = sum(scores) / len(scores)
    return found


def test_two_rounds_and_two_runs_are_compared_prompt_by_prompt_with_the_cause(
    home: Path, tmp_path: Path
) -> None:
    """Round 1 against round 3 of the run; and a run of the last two files alone against it."""
    first, last = last_rates(FILES[:2]), last_rates(FILES)
    fell = {prompt: (first[prompt], last[prompt]) for prompt in first if last[prompt] < first[prompt]}
    found = data(home, "runs", "diff", "v@1..v@3")["prompts"]
    assert (found["prompts"], found["less"]) == (len(first), len(fell))
    assert {one["prompt"]: tuple(one["pass_rates"]) for one in found["drops"]} == fell
    asked = "SELECT question, cause_id FROM v_trajectory"
    causes = {(row["question"].strip(), row["cause_id"]) for row in data(home, "memory", "query", asked)}
    assert all((one["prompt"], one["cause_id"]) in causes for one in found["drops"] if one["cause_id"])
    for file in FILES[4:]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    said(home, "ingest", "verl", str(tmp_path), "--run", "late")
    after = last_rates(FILES[4:])
    both = [prompt for prompt in after if prompt in last]
    found = data(home, "runs", "diff", "late..v")["prompts"]
    assert (found["prompts"], found["less"]) == (len(both), sum(last[p] < after[p] for p in both))


@pytest.mark.slow
def test_the_page_of_the_run_names_the_prompts_that_fell_with_their_cause(home: Path, tmp_path: Path) -> None:
    said(home, "view", "--run", "v", "--export", str(tmp_path / "site"))
    page = unescape((tmp_path / "site" / "v" / "index.html").read_text(encoding="utf-8"))
    rates = data(home, "runs", "show", "v")["pass_rates"]
    assert f"{rates['dropped']} of {rates['prompts']} prompts that came back passed less often" in page
    table = page[page.index("<h2>Prompts that passed less often") :]
    for drop in rates["drops"]:
        row = next(row for row in table.split("<tr>") if drop["prompt"] in row)
        assert f"{drop['first_pass_rate']:.1%}" in row
        assert f"{drop['last_pass_rate']:.1%}" in row
        assert drop["cause_id"] is None or f"causes/{drop['cause_id']}.html" in row


@pytest.fixture(scope="module")
def fallen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs over 30 prompts: in `before` each passed once of two, in `after` 24 never; 20 tags."""
    folder = tmp_path_factory.mktemp("fallen")
    for run, failing in (("before", 0), ("after", 24)):
        rows = [
            {
                "prompt": f"question {n}",
                "response": f"{run} {n}.{sample}",
                "reward": int(sample == 0 and n >= failing),
                "tags": [f"tag {n % 20}"],
            }
            for n in range(30)
            for sample in range(2)
        ]
        (folder / f"{run}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        said(folder, "ingest", "jsonl", folder / f"{run}.jsonl", "--run", run)
    return folder


def listed(screen: str, begins: str) -> int:
    return sum(begins in line for line in screen.splitlines())


def test_a_list_that_ends_early_says_how_many_more_there_are_and_where(fallen: Path) -> None:
    """Every number is that of a view."""
    both = "SELECT count(*) AS n FROM v_prompt a JOIN v_prompt b ON b.question = a.question AND b.run_id ="
    both += " 'before' WHERE a.run_id = 'after' AND a.last_pass_rate < b.last_pass_rate"
    [fell] = data(fallen, "memory", "query", both)
    screen = said(fallen, "runs", "diff", "before..after")
    assert f"in after, {fell['n']} passed less often and 0 more often" in screen
    assert "more often; " not in screen
    row = {"prompt": "Another?", "response": "It is 5.", "reward": 1}
    (fallen / "more.jsonl").write_text(f"{(fallen / 'after.jsonl').read_text()}{json.dumps(row)}\n")
    said(fallen, "ingest", "jsonl", fallen / "more.jsonl", "--run", "more")
    assert "more often; 1 only in more" in said(fallen, "runs", "diff", "before..more")
    assert listed(screen, "question ") == 12
    assert f"{fell['n'] - 12} more that passed less often: diagevo runs diff before..after --json" in screen
    every = data(fallen, "runs", "diff", "before..after")["prompts"]["drops"]
    assert len(every) == fell["n"] == 24
    left = "SELECT * FROM v_prompt WHERE run_id = :run AND without_cause > 0"
    rest = len(data(fallen, "memory", "query", left, "--run", "after"))
    screen = said(fallen, "runs", "show", "after")
    assert f'{rest - 5} more prompts: diagevo memory query "{left}" --run after' in screen
    assert listed(screen, "question ") == 5 + 1  # one more in the sentence above them
    tags = data(fallen, "memory", "query", "SELECT tag FROM v_tag WHERE run_id = :run", "--run", "after")
    assert f"{len(tags) - 12} more tags" in screen


def test_the_cause_of_a_prompt_is_the_same_however_many_are_asked_for(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list({group.event.question for group in history.events(GroupIngested)})
    few = last_causes(history, asked)
    monkeypatch.setattr("diagevo.memory.read.pass_rates.NAMED", 1)
    assert last_causes(history, asked) == few
    assert sorted(few.values()) == ["c1", "c2"]
