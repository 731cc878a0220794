"""What a person says of failures is on every screen, in the exports, and in the sheet that they label."""

import csv
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

NOTE = "km, <b>not</b> m"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """`a`: an evaluation with 3 failures of c1 and 1 of c2."""
    with configured(tmp_path) as memory:
        record(memory, step(1, a="+---", b="+-++"))
        diagnose(memory, {"a": "drops a carry", "b": "swaps digits"})
    (tmp_path / "log.db").rename(tmp_path / "diagevo.db")
    return tmp_path


@pytest.fixture
def ask(home: Path) -> Ask:
    return lambda *given: invoke(*given, env={"DIAGEVO_HOME": str(home)})


def test_an_assignment_is_on_the_screens_and_in_the_exports(ask: Ask, home: Path) -> None:
    done = ask("memory", "assign", "r1.q0.a1", "r1.q0.a2", "--new", "reads the unit wrong", "--note", NOTE)
    assert done.exit_code == 0, done.output
    assert done.stdout == "c3  Active, f = 2: reads the unit wrong\n"
    done = ask("memory", "assign", "r1.q1.a1", "drops a carry")
    assert done.stdout == "c1  Active, f = 2: drops a carry\n"
    listed = json.loads(ask("memory", "show", "--json").stdout)["data"]
    assert {one["id"]: one["frequency"] for one in listed["causes"]} == {"c1": 2, "c2": 0, "c3": 2}
    why = ask("memory", "why", "r1.q0.a1").stdout
    assert "assigned" in why
    assert f": {NOTE}" in why
    assert "reads the unit wrong" in why
    assert "r1.q0.a1 by" in ask("memory", "why", "c1").stdout
    assert "r1.q0.a1 by" in ask("memory", "why", "c3").stdout
    assert ask("runs", "export", "a", "--as", "dpo", "-o", str(home / "d.jsonl")).exit_code == 0
    rows = [json.loads(line) for line in (home / "d.jsonl").read_text().splitlines()]
    assert sorted(row["cause_id"] for row in rows) == ["c1", "c1", "c3", "c3"]
    shown = ask("memory", "show").output
    assert "swaps digits" not in shown
    database = Database(f"sqlite:///{home / 'diagevo.db'}")
    view = View(Site(database, live=True))
    own = view.render("a/causes/c3.html")
    assert "2 failures on 1 question: 2 in round 1" in own
    assert own.count(">assigned by ") == 2
    assert "km, &lt;b&gt;not&lt;/b&gt; m" in own
    listed = view.render("a/causes/c1.html").partition("<tbody>")[2]
    assert "r1.q0.a3" in listed
    assert "r1.q1.a1" in listed
    assert "r1.q0.a1" not in listed
    assert "causes/c3.html" in view.render("a/questions/r1.q0.html")
    assert "assigned by" in ask("memory", "why", "r1.q0").stdout
    database.close()
    done = ask("memory", "assign", "r1.q0.a1", "r1.q1.a1", "--undo")
    assert done.stdout == "c1  Active, f = 2: drops a carry\nc2  Active, f = 1: swaps digits\n"
    assert ask("memory", "verify").exit_code == 0


def test_a_sheet_goes_out_and_comes_back(ask: Ask, home: Path) -> None:
    sheet = home / "labels.csv"
    done = ask("memory", "label", "--export", str(sheet))
    assert done.stdout.startswith(f"4 failures in {sheet}: write each one's cause into `label`")
    with sheet.open(encoding="utf-8-sig", newline="") as source:
        rows = list(csv.DictReader(source))
    for row, label in zip(rows, ("drops a carry", "reads the unit wrong", "", "c2"), strict=True):
        row["label"] = label
    with sheet.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, rows[0], delimiter=";")
        writer.writeheader()
        writer.writerows(rows)
    done = ask("memory", "label", "--import", str(sheet))
    assert done.exit_code == 0, done.output
    # c1, c3, c2 against c1, c1, c2: by chance (1·2 + 1·1)/9, so κ = (2/3 − 1/3)/(1 − 1/3).
    assert done.stdout == (
        "3 labels read, 1 row without one; 3 failures assigned, 1 new cause\n"
        "you and the diagnosis agree on 2 of 3 (66.7%), κ = 0.50\n"
    )
    assert ask("memory", "label", "--export", str(sheet)).exit_code == 2  # it may have labels


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("assign", "r1.q0.a1"), "r1.q0.a1 alone is not enough"),
        (("assign", "r1.q0.a1", "--undo"), "nobody assigned r1.q0.a1"),
        (("assign", "r1.q0.a1", "c9"), "there is no cause c9"),
        (("assign", "c1", "c2"), "c1 is not the id of a failure"),
        (("assign", "r1.q0.a1", "--new", " "), "the description is empty"),
        (("assign", "r1.q0.a1", "--new", "swaps digits"), "c2 already has this description"),
        (("assign", "r1.q0.a1", "--undo", "--note", "x"), "--undo takes no new cause"),
        (("label",), "say what to do with the labels"),
        (("label", "--export", "x.csv", "--limit", "0"), "--limit 0 is not a number of failures"),
        (("label", "--import", "none.csv"), "none.csv"),
    ],
)
def test_what_cannot_be_said_is_refused(ask: Ask, given: tuple[str, ...], words: str) -> None:
    done = ask("memory", *given)
    assert done.exit_code in (1, 2, 3, 4, 5)
    assert words in done.output
    assert "Traceback" not in done.output
