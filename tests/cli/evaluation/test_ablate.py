"""`ablate plan, run, compare` through the program, with real runs as small as they can be."""

import csv
import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from diagevo.evaluation import ablation
from diagevo.evaluation.ablation import VARIANTS
from tests.cli.program import STARTED, clean_environment
from tests.forked import Forked
from tests.run.program import PROGRAM

from .conftest import Ask, rows

pytestmark = pytest.mark.slow

TINY = [
    "--profile=embedded",
    "--set=round={candidates: 24, responses: 4, challenger_votes: 2}",
    "--set=challenger_grpo={max_steps: 1, batch_questions: 2, group: 2, micro_batch: 4}",
    "--set=solver_grpo={max_steps: 1, batch_questions: 4, group: 4, micro_batch: 16}",
    "--set=validation={limit: 4, samples: 1}",
]


class ForkedProgram(Forked):
    """What trains and measures, in the place of Popen; it holds the lock of its log as a started one does."""

    def __init__(self, argv: Sequence[str], *, stdout: IO[str], env: Mapping[str, str], **_: object) -> None:
        assert [argv[0], *argv[2:4]] == STARTED
        super().__init__(PROGRAM, argv[4:], env=env, into=stdout)

    def wait(self, timeout: float | None = 300) -> int:
        return super().wait(timeout)


PROGRAMS = SimpleNamespace(Popen=ForkedProgram, STDOUT=subprocess.STDOUT)


@pytest.fixture(autouse=True)
def _forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagevo.evaluation.ablation.subprocess", PROGRAMS)


def program() -> None:
    """The program, forked, whose programs are forked too."""
    from tests import preloaded

    ablation.subprocess = PROGRAMS  # pyright: ignore[reportAttributeAccessIssue]
    preloaded.program()


def plan(ask: Ask, *more: str):
    return ask("ablate", "plan", "small", "--variants", "full,free-only", "--seeds", "0", *more)


def test_a_plan_names_its_runs_and_status_needs_no_database(ask: Ask, home: Path) -> None:
    planned = rows(plan(ask, "--rounds", "2", "--json"))
    assert [line["run"] for line in planned] == ["small.full.s0", "small.free-only.s0"]
    found = rows(ask("ablate", "run", "--status", "--json"))
    assert [(line["committed"], line["state"]) for line in found] == [("0/2", "waiting")] * 2
    assert not (home / "diagevo.db").exists()
    assert "small.full.s0" in ask("ablate", "run", "--status", "--format", "csv").stdout
    assert not {"\x1b", "\r"} & set(ask("ablate", "run", "--status").stdout)


def test_all_variants_with_three_seeds_is_the_papers_plan(ask: Ask) -> None:
    planned = rows(ask("ablate", "plan", "paper", "--profile", "qwen3-8b", "--json"))
    assert len(planned) == 3 * sum(v.table != "control" for v in VARIANTS) == 57
    assert {line["seed"] for line in planned} == {0, 1, 2}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["plan", "p", "--variants", "full,fre-only"], 3, "no variant 'fre-only'"),
        (["plan", "p", "--seeds", "0,one"], 2, "--seeds 0,one: not whole numbers"),
        (["plan", "p", "--seeds=-1,0"], 2, "--seeds -1,0: a seed is at least 0"),
        (["plan", "../p"], 2, "is not a valid name of a plan"),
        (["plan", "p", "--set", "filter.tua=2"], 2, "filter.tau"),
        (["plan", "p", "--eval", "gsm9k --limit 3"], 3, "no benchmark 'gsm9k'"),
        (["plan", "small", "--seeds", "1"], 2, "another plan small"),
        (["run", "nothing"], 3, "there are: small"),
        (["run", "nothing", "--status"], 3, "there are: small"),
        (["compare", "nothing"], 3, "there are: small"),
        (["compare", "small", "--against", "k-0.2"], 3, "there are: full, free-only"),
    ],
)
def test_bad_input(ask: Ask, arguments: list[str], code: int, says: str) -> None:
    plan(ask)
    result = ask("ablate", *arguments)
    assert result.exit_code == code, result.output
    assert says in result.stderr
    assert json.loads(ask("ablate", *arguments, "--json").stdout)["error"]["message"]


def test_a_run_that_fails_ends_with_its_exit_code_and_names_its_log(ask: Ask, home: Path) -> None:
    plan(ask, *TINY, "--set=roles.solver.model=nowhere/at/all")
    result = ask("ablate", "run")
    assert result.exit_code == 4, result.output
    log = home / "ablations" / "small" / "small.full.s0.log"
    assert f"its output is in {log}" in result.stderr
    assert "nowhere" in log.read_text()
    assert log.read_text().startswith("$ diagevo train --run small.full.s0")


def test_a_run_that_another_process_plays_is_passed_over(ask: Ask, home: Path) -> None:
    plan(ask, *TINY, "--set=roles.solver.model=nowhere/at/all")  # whatever is played fails
    folder = home / "ablations" / "small"
    with (
        open(folder / "small.full.s0.log", "w") as one,
        open(folder / "small.free-only.s0.log", "w") as other,
    ):
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(other, fcntl.LOCK_EX)
        result = ask("ablate", "run")
    assert result.exit_code == 0, result.output
    assert "small.full.s0: another process is playing it, skipped" in result.stderr
    assert "small.free-only.s0: another process is playing it, skipped" in result.stderr
    assert ask("ablate", "run").exit_code == 4  # played now


def test_a_killed_ablation_leaves_its_run_to_the_process_that_trains_and_goes_on(
    ask: Ask, home: Path
) -> None:
    """Both are started, as a user's are."""
    plan(ask, *TINY, "--rounds", "1", "--variants", "full")
    log = home / "ablations" / "small" / "small.full.s0.log"
    with subprocess.Popen(
        [*STARTED, "ablate", "run", "small"],
        env=clean_environment(DIAGEVO_HOME=str(home)),
        stderr=subprocess.DEVNULL,
    ) as first:
        while not (log.exists() and "challenger: started" in log.read_text()):
            time.sleep(0.01)
        [trains] = map(int, Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split())
        os.kill(trains, signal.SIGSTOP)
        first.kill()
    assert "another process is playing it" in ask("ablate", "run").stderr
    os.kill(trains, signal.SIGKILL)
    with open(log) as gone:
        fcntl.flock(gone, fcntl.LOCK_EX)
    played = rows(ask("ablate", "run", "--json"))
    assert [(line["committed"], line["state"]) for line in played] == [("1/1", "trained")]
    assert log.read_text().count("$ diagevo train") == 2
    assert "--resume" in log.read_text()


def test_a_stopped_ablation_goes_on_and_its_table_comes_out(ask: Ask, home: Path, tmp_path: Path) -> None:
    """Ctrl-C while the first run trains: it stops safely. Then both are played, measured and tabled once."""
    plan(ask, *TINY, "--rounds", "1", "--eval", "held-out --limit 4")
    log = home / "ablations" / "small" / "small.full.s0.log"
    env, command = clean_environment(DIAGEVO_HOME=str(home)), ["ablate", "run", "small"]
    main = "tests.cli.evaluation.test_ablate:program"
    with (tmp_path / "said").open("w") as said, Forked(main, command, env=env, into=said) as first:
        while not (log.exists() and "challenger: started" in log.read_text()):
            time.sleep(0.01)
        first.send_signal(signal.SIGINT)
        assert first.wait(None) == 75, (tmp_path / "said").read_text()
    errors = (tmp_path / "said").read_text()
    assert "hint: continue with: diagevo ablate run small" in errors
    assert "stopping at the next safe point" in log.read_text()
    assert rows(ask("ablate", "run", "--status", "--json"))[1]["state"] == "waiting"

    played = rows(ask("ablate", "run", "--json"))
    assert [(line["committed"], line["state"]) for line in played] == [("1/1", "trained")] * 2
    assert log.read_text().count("$ diagevo train") == 2
    assert "--resume" in log.read_text()
    measured = rows(ask("eval", "show", "--json"))
    assert [(line["run"], line["benchmark"]) for line in measured] == [
        ("small.full.s0", "held-out"),
        ("small.free-only.s0", "held-out"),
    ]
    compared = rows(ask("ablate", "compare", "--json"))
    assert [(line["variant"], line["seeds"], line["p"]) for line in compared] == [("free-only", 1, None)]
    said = ask("ablate", "compare").stderr
    assert "2 of 2 runs" in said
    assert "free exploration mostly writes the families of the head" in said
    unknown = ask("ablate", "compare", "--metric", "accuracy")
    assert unknown.exit_code == 3
    assert "greedy/tail" in unknown.stderr
    before = log.stat().st_size
    rows(ask("ablate", "run", "--json"))
    assert "$ diagevo train" not in log.read_text()[before:]

    only = ("report", "build", "--only", "table-ablation", "--plan", "small")
    files = rows(ask(*only, "--to", home / "only", "--json"))
    assert [Path(line["file"]).name for line in files] == ["ablation.md", "ablation.csv"]
    written = list(csv.DictReader((home / "only" / "tables" / "ablation.csv").open(encoding="utf-8")))
    assert {line["method"] for line in written} == {"Pure free exploration", "DiagEvo (full)"}
    assert {line["column"] for line in written} == {"Val. mean@k", "Val. greedy"}
    assert "arithmetic world" in (home / "only" / "tables" / "ablation.md").read_text(encoding="utf-8")
    built = ask("report", "build", "--run", "small.full.s0", "--plan", "small", "--to", home / "page")
    assert built.exit_code == 0, built.output
    assert (home / "page" / "tables" / "ablation.md").exists()
    assert 'id="table-ablation"' in (home / "page" / "small.full.s0" / "index.html").read_text()
