"""Each file of `examples/` runs as it stands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import clean_environment, invoke
from tests.ingest.conftest import DATA

EXAMPLES = Path(__file__).parents[1] / "examples"
BIN = Path(sys.executable).parent


def run(*command: str | Path) -> str:
    env = clean_environment(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", OMP_NUM_THREADS="1")
    done = subprocess.run(
        [*map(str, command)], env=env, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run_here() -> None:
    assert {file.name for file in EXAMPLES.glob("*.*")} == {
        "round_by_hand.py",
        "trl_steered.py",
        "verl_log.sh",
    }


def test_a_round_by_hand(tmp_path: Path) -> None:
    """One failure: F = F₁ = 1, so z = 1 and ε₂ = 1/3."""
    assert run(sys.executable, EXAMPLES / "round_by_hand.py", tmp_path) == "F = 1, ε₂ = 1/3\n"


def test_a_verl_log_is_audited_by_the_program(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/diagevo.db"
    told = run("sh", EXAMPLES / "verl_log.sh", DATA / "verl" / "rollouts", database)
    assert "verl: 6 steps (6 new), 96 rollouts in 24 groups" in told
    assert "round 1 waits for its diagnosis, 2 more behind it" in told
    assert "\nc1  " in told


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_trl_keeps_a_memory_and_is_steered_by_it(tmp_path: Path, processes: int) -> None:
    """Four steps are two rounds, of 2 · 4 prompts a process. The second round's first prompts were drawn
    ahead, by the schedule of the first."""
    command = [sys.executable, EXAMPLES / "trl_steered.py", tmp_path]
    if processes > 1:
        ranks = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        command = [sys.executable, *ranks, *command[1:]]
    run(*command)
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
