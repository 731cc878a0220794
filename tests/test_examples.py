"""Each file of `examples/` runs as it stands."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import sql_sample
from tests.cli.program import clean_environment, invoke
from tests.diagnosis.server import Answer, Server
from tests.forked import Forked
from tests.ingest.conftest import DATA
from tests.memory.audit.played import play
from tests.training.forked_ranks import play_ranks

EXAMPLES = Path(__file__).parents[1] / "examples"
BIN = Path(sys.executable).parent


README = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
INDEX = (EXAMPLES.parent / "docs" / "index.md").read_text(encoding="utf-8")
HOWTO = (EXAMPLES.parent / "docs" / "howto" / "ingest.md").read_text(encoding="utf-8")


def block(page: str, language: str, word: str) -> str:
    """The one block of a page in this language with this word in it."""
    [found] = [b for b in re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL) if word in b]
    return found


def run(*command: str | Path, cwd: Path | None = None) -> str:
    env = clean_environment(
        PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", OMP_NUM_THREADS="1", OPENAI_API_KEY="none"
    )
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def example() -> None:
    """Run the file that is named first, in a process that has imported TRL (tests/forked.py)."""
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


def training() -> None:
    """`python training.py` in the folder that is named, in a process that has imported TRL."""
    os.chdir(sys.argv[1])
    sys.path.insert(0, sys.argv[1])
    runpy.run_path("training.py", run_name="__main__")


def test_every_example_is_run_here() -> None:
    """`make lm` runs smollm2.py, which reads 170 MB of packages; tests/policies the two policies;
    tests/integrations what verl and prime-rl follow."""
    assert {file.name for file in EXAMPLES.glob("*.*")} == {
        "bandit.py",
        "diagnose_an_evaluation.ipynb",
        "learnability.py",
        "prime_rl_steered.py",
        "read_a_run.ipynb",
        "round_by_hand.py",
        "smollm2.py",
        "smollm2.txt",
        "sql_eval.jsonl",
        "trl_observed.py",
        "trl_steered.py",
        "verl_log.sh",
        "verl_steered.py",
    }


@pytest.mark.slow
def test_a_round_by_hand(tmp_path: Path) -> None:
    """One failure: F = F₁ = 1, so z = 1 and ε₂ = 1/3."""
    assert run(sys.executable, EXAMPLES / "round_by_hand.py", tmp_path) == "F = 1, ε₂ = 1/3\n"
    arguments = [sys.executable, EXAMPLES / "round_by_hand.py", tmp_path]
    again = subprocess.run(arguments, capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"{tmp_path} has a database already, and its round 1 is over: name a new folder\n"


@pytest.mark.slow
def test_a_verl_log_is_audited_by_the_program(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/diagevo.db"
    cause = "borrows one digit too late when it subtracts numbers with several digits from each other"

    def behave(request: dict[str, Any], before: int) -> Answer:
        form = json.dumps(request["response_format"])
        found = {"matched_cause_id": None, "error_cause": cause, "duplicate": False, "create_new_node": True}
        found |= {"new_node_label": "subtraction", "assigned_node": None}
        found |= {"merge": False, "merged_label": None}
        return Answer(json.dumps({name: said for name, said in found.items() if f'"{name}"' in form}))

    with Server(behave) as server:
        told = run("sh", EXAMPLES / "verl_log.sh", DATA / "verl" / "rollouts", "asked", server.url, database)
    assert "verl: 6 steps (6 new), 96 rollouts in 24 groups" in told
    assert "round 1 waits for its diagnosis, 2 more behind it" in told
    assert "\nc1  " in told


def test_the_plain_line_of_the_readme_is_a_rollout(tmp_path: Path) -> None:
    """With a second rollout of its group, which failed: a group with passes and failures."""
    line = block(README, "json", "reward")
    assert line == block(HOWTO, "json", "reward")
    (tmp_path / "own.jsonl").write_text(line + line.replace("1.0", "0.0"))
    file, env = tmp_path / "own.jsonl", {"DIAGEVO_HOME": str(tmp_path)}
    found = invoke("ingest", "jsonl", file, "--run", "own", "--json", env=env)
    told = json.loads(found.stdout)["data"]
    assert (told["steps"], told["rollouts"], told["failures"]) == (1, 2, 1)
    assert told["groups"] == {"contrast": 1, "all_failed": 0, "all_passed": 0}
    asked = invoke("memory", "why", "r1.q0", "--run", "own", "--json", env=env)
    question = json.loads(asked.stdout)["data"]
    assert (question["question"], question["label"]) == ("What is 2 + 2?", "4")


@pytest.mark.slow
def test_the_trl_program_of_the_readme_keeps_a_memory_as_it_stands_there(tmp_path: Path) -> None:
    """Four steps of four prompts are two rounds of eight groups, which wait as the README says."""
    lines = block(README, "python", "GRPOTrainer")
    assert (EXAMPLES / "trl_observed.py").read_text().endswith(f'"""\n\n{lines}')
    (tmp_path / "training.py").write_text(lines)
    with (
        (tmp_path / "log").open("w") as log,
        Forked("tests.test_examples:training", [str(tmp_path)], env=clean_environment(), into=log) as program,
    ):
        assert program.wait(300) == 0, (tmp_path / "log").read_text()
    assert re.search(r"16 groups with \d+ failures wait: diagevo diagnose", (tmp_path / "log").read_text())
    env = {"DIAGEVO_HOME": str(tmp_path / "runs")}
    asked = invoke("diagnose", "--run", "mine", "--local", env=env)
    assert asked.exit_code == 0, asked.output
    found = json.loads(invoke("runs", "show", "mine", "--json", env=env).stdout)["data"]
    assert [(r["round"], r["candidates"], r["rollouts"]) for r in found["rounds"]] == [(1, 8, 32), (2, 8, 32)]
    assert [(s["step"], s["groups"]) for s in found["pass_rates"]["steps"]] == [(n, 4) for n in (1, 2, 3, 4)]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_trl_keeps_a_memory_and_is_steered_by_it(tmp_path: Path, processes: int) -> None:
    """Four steps are two rounds, of 2 · 4 prompts a process. The second round's first prompts were drawn
    ahead, by the schedule of the first."""
    command = [str(EXAMPLES / "trl_steered.py"), str(tmp_path)]
    play_ranks("tests.test_examples:example", command, os.environ, ranks=processes)
    scored = invoke(
        "memory",
        "query",
        "SELECT round, count(*), sum(payload LIKE '%\"drawn_round\":1%') FROM v_event"
        " WHERE type = 'CandidateScored' GROUP BY round ORDER BY round",
        "--db",
        f"sqlite:///{tmp_path}/diagevo.db",
        "--format",
        "csv",
    )
    rows = [line.split(",") for line in scored.stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [["1", str(8 * processes)], ["2", str(8 * processes)]]
    assert rows[0][2] == "0"
    assert 0 < int(rows[1][2]) <= 8 * processes
    assert invoke("memory", "verify", "--deep", "--db", f"sqlite:///{tmp_path}/diagevo.db").exit_code == 0


def executed(name: str) -> dict[str, Any]:
    """What the cells of a notebook leave behind, run from top to bottom."""
    notebook = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    assert all(cell.get("outputs", []) == [] for cell in notebook["cells"])
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), name, "exec"), names)
    return names


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(str(tmp_path / "runs" / "diagevo.db"), "first", root=tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    names = executed("read_a_run.ipynb")
    assert [type(turn).__name__ for turn in names["story"].turns][:2] == ["Created", "Counted"]


def test_the_notebook_of_an_evaluation_finds_what_the_commands_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(EXAMPLES / "sql_eval.jsonl", tmp_path)
    monkeypatch.chdir(tmp_path)
    executed("diagnose_an_evaluation.ipynb")
    assert invoke("ingest", "jsonl", "sql_eval.jsonl", "--run", "typed").exit_code == 0
    assert invoke("diagnose", "--run", "typed", "--local").exit_code == 0
    query = "SELECT cause_id, description, frequency FROM v_cause WHERE run_id = :run ORDER BY number"
    by_notebook, by_command = (
        invoke("memory", "query", query, "--run", run, "--format", "csv").stdout for run in ("sql", "typed")
    )
    assert by_notebook == by_command
    assert by_notebook.count("\n") > 5


def test_the_sample_is_made_by_its_program() -> None:
    """Which runs every query: what passes is found, not planned."""
    sample = [json.loads(line) for line in (EXAMPLES / "sql_eval.jsonl").read_text().splitlines()]
    assert sample == list(sql_sample.rows())
    assert len({row["prompt"] for row in sample}) == 100
    assert len({row["response"] for row in sample}) > 590
    assert {row["reward"] for row in sample} == {0.0, 1.0}
    assert all("feedback" in row for row in sample if not row["reward"])


@pytest.mark.parametrize("page", [README, INDEX, HOWTO], ids=["README", "index", "howto"])
def test_the_first_page_shows_what_the_sample_gives(page: str, tmp_path: Path) -> None:
    printed: list[str] = []
    for line in block(page, "console", "ingest jsonl examples/").splitlines():
        program, *arguments = line.removeprefix("$ ").split()
        if program == "diagevo":
            at = [str(EXAMPLES.parent / word) if word.startswith("examples/") else word for word in arguments]
            told = invoke(*at, env={"DIAGEVO_HOME": str(tmp_path)})
            assert told.exit_code == 0, told.output
            printed += told.stdout.splitlines()
    assert_shown(block(page, "text", "which passes have"), printed)


def assert_shown(text: str, printed: list[str]) -> None:
    """The lines of a page are those of the program, whose spacing depends on its other lines; where a page
    has … it leaves some out."""
    printed = [" ".join(line.split()) for line in printed]
    for part in text.split("…\n"):
        lines = [" ".join(line.split()) for line in part.splitlines()]
        if lines:
            at = printed.index(lines[0])
            assert printed[at : at + len(lines)] == lines
            del printed[: at + len(lines)]
