"""What an auditor dismisses is on no first screen and in no export, and what is left out is stated."""

import json
from pathlib import Path

import pytest

from diagevo.memory.log.database import Database
from diagevo.view.page import Site
from diagevo.view.site import View
from tests.cli.memory.conftest import Ask
from tests.cli.program import invoke
from tests.ingest.conftest import configured, step
from tests.ingest.test_recording import diagnose, record
from tests.memory.audit.played import play

WHY = "the grader <b>wants</b> a unit"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a`: an evaluation with 3 failures of c1 and 1 of c2. `played`: two rounds by hand."""
    home = tmp_path_factory.mktemp("home")
    with configured(home) as memory:
        record(memory, step(1, a="+---", b="+-++"))
        diagnose(memory, {"a": "drops a carry", "b": "swaps digits"})
    (home / "log.db").rename(home / "diagevo.db")
    play(f"sqlite:///{home / 'diagevo.db'}", "played", root=home, rounds=2)
    for run in ("a", "played"):
        given = "memory", "dismiss", "c1", "--because", WHY, "--run", run
        done = invoke(*given, env={"DIAGEVO_HOME": str(home)})
        assert done.exit_code == 0, done.output
    return home


@pytest.fixture
def ask(home: Path) -> Ask:
    return lambda *given: invoke(*given, env={"DIAGEVO_HOME": str(home)})


def test_the_screens_of_an_evaluation_leave_it_out_and_say_so(ask: Ask) -> None:
    shown = ask("memory", "show", "--run", "a")
    assert "drops a carry" not in shown.stdout
    assert "a: 1 of 4 failures have 1 cause" in shown.output
    assert "dismissed: c1 (3 failures); diagevo memory why c1 --run a" in shown.output
    listed = json.loads(ask("memory", "show", "--run", "a", "--json").stdout)["data"]
    assert [cause["state"] for cause in listed["causes"]] == ["dismissed", "active"]
    assert "drops a carry" not in ask("runs", "show", "a").stdout
    why = ask("memory", "why", "c1", "--run", "a").stdout
    assert "DISMISSED" in why
    assert f": {WHY}" in why
    assert "3 failures left out, by" in why


def test_the_screens_of_a_training_leave_it_out_and_the_tree_has_it(ask: Ask) -> None:
    for command in ("show", "schedule"):
        shown = ask("memory", command, "--run", "played").stdout.splitlines()
        assert "c2" in (first := [line.partition(" ")[0] for line in shown])
        assert "c1" not in first
    assert "c1 Dismissed, f = " in ask("memory", "show", "--run", "played", "--tree").stdout
    assert "a dismissed cause is not aimed at" in ask("memory", "why", "c1", "--run", "played").stdout


@pytest.mark.parametrize("kind", ["dpo", "sft", "prompts"])
def test_no_export_has_its_failures(ask: Ask, kind: str) -> None:
    assert ask("runs", "export", "played", "--as", kind, "-o", "data.jsonl").exit_code == 0
    rows = [json.loads(line) for line in Path("data.jsonl").read_text().splitlines()]
    assert rows
    assert "c1" not in {row["cause_id"] for row in rows}


def test_the_first_page_counts_it_apart_and_its_own_page_says_why(home: Path) -> None:
    database = Database(f"sqlite:///{home / 'diagevo.db'}")
    view = View(Site(database, live=True))
    page = view.render("a/index.html")
    assert "1 have a cause (1 cause); 3 are of 1 dismissed cause" in page
    assert "drops a carry" not in page
    own = view.render("played/causes/c1.html")
    assert "the grader &lt;b&gt;wants&lt;/b&gt; a unit" in own
    assert 'class="state dismissed"' in own
    assert 'value="dismissed"' in view.render("played/causes.html")
    database.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("c2",), "say why it is not a fault, or undo the dismissal"),
        (("c2", "--because", " "), "the reason is empty"),
        (("c2", "--undo"), "c2 is not dismissed"),
        (("c1", "--because", "again"), "c1 is dismissed already"),
        (("c1", "--because", "again", "--undo"), "say why it is not a fault, or undo the dismissal"),
    ],
)
def test_what_cannot_be_dismissed_is_refused(ask: Ask, given: tuple[str, ...], words: str) -> None:
    done = ask("memory", "dismiss", *given, "--run", "played")
    assert done.exit_code == 2
    assert words in done.output


def test_the_rounds_of_a_run_say_that_the_memory_is_another_since(ask: Ask) -> None:
    words, of_it = "a dismissal changed the memory since round 2", ("c2", "--run", "played")
    assert words not in ask("runs", "show", "played").output
    assert ask("memory", "dismiss", *of_it, "--because", WHY).exit_code == 0
    assert words in ask("runs", "show", "played").output
    assert ask("memory", "dismiss", *of_it, "--undo").exit_code == 0
    assert words not in ask("runs", "show", "played").output
