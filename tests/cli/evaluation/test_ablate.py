"""`ablate plan, run, compare` through the program, with real runs as small as they can be."""

import csv
import json
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

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


def said(home: Path) -> str:
    """What the programs of the runs said."""
    file = home / "said"
    return file.read_text() if file.exists() else ""


class ForkedProgram(Forked):
    """What trains and measures, in the place of Popen; its words go to a file."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], **_: object) -> None:
        assert [argv[0], *argv[2:4]] == STARTED
        with (Path(env["DIAGEVO_HOME"]) / "said").open("a") as into:
            into.write(f"$ diagevo {' '.join(argv[4:])}\n")
            into.flush()
            super().__init__(PROGRAM, argv[4:], env=env, into=into)

    def wait(self, timeout: float | None = 300) -> int:
        return super().wait(timeout)


PROGRAMS = SimpleNamespace(Popen=ForkedProgram)


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


def test_a_run_that_fails_ends_with_its_exit_code(ask: Ask, home: Path) -> None:
    plan(ask, *TINY, "--set=roles.solver.model=nowhere/at/all")
    result = ask("ablate", "run")
    assert result.exit_code == 4, result.output
    assert "this failed with exit code 4: diagevo train --run small.full.s0" in result.stderr
    assert "nowhere" in said(home)


def test_a_stopped_ablation_goes_on_and_its_table_comes_out(ask: Ask, home: Path, tmp_path: Path) -> None:
    """Ctrl-C while the first run trains: it stops safely. Then both are played, measured and tabled once."""
    plan(ask, *TINY, "--rounds", "1", "--eval", "held-out --limit 4")
    env, command = clean_environment(DIAGEVO_HOME=str(home)), ["ablate", "run", "small"]
    main = "tests.cli.evaluation.test_ablate:program"
    with (tmp_path / "own").open("w") as own, Forked(main, command, env=env, into=own) as first:
        while "challenger: started" not in said(home):
            time.sleep(0.01)
        first.send_signal(signal.SIGINT)
        assert first.wait(None) == 75, (tmp_path / "own").read_text()
    errors = (tmp_path / "own").read_text()
    assert "hint: continue with: diagevo ablate run small" in errors
    assert "stopping at the next safe point" in said(home)
    assert rows(ask("ablate", "run", "--status", "--json"))[1]["state"] == "waiting"

    played = rows(ask("ablate", "run", "--json"))
    assert [(line["committed"], line["state"]) for line in played] == [("1/1", "trained")] * 2
    assert said(home).count("$ diagevo train") == 3  # one of them resumed
    assert "--resume" in said(home)
    measured = rows(ask("eval", "show", "--json"))
    assert [(line["run"], line["benchmark"]) for line in measured] == [
        ("small.full.s0", "held-out"),
        ("small.free-only.s0", "held-out"),
    ]
    compared = rows(ask("ablate", "compare", "--json"))
    assert [(line["variant"], line["seeds"], line["p"]) for line in compared] == [("free-only", 1, None)]
    errors = ask("ablate", "compare").stderr
    assert "2 of 2 runs" in errors
    assert "free exploration mostly writes the families of the head" in errors
    unknown = ask("ablate", "compare", "--metric", "accuracy")
    assert unknown.exit_code == 3
    assert "greedy/tail" in unknown.stderr
    before = len(said(home))
    rows(ask("ablate", "run", "--json"))
    assert "$ diagevo train" not in said(home)[before:]

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
