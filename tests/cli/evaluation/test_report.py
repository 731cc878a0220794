"""`report build` through the program."""

import csv
import io
import json
import shlex
from contextlib import closing
from pathlib import Path

import pytest
import typer

from diagevo.memory.history import open_history
from diagevo.report.figure import Missing
from diagevo.report.figures import FIGURES, draw
from diagevo.report.report_data import gather
from tests.cli.program import leaves, load
from tests.memory.audit import played

from .conftest import Ask, rows

pytestmark = pytest.mark.slow


@pytest.fixture
def hand(home: Path) -> Path:
    """A hand-played run: no world that knows its answers, no validation, an embedder of its own."""
    played.play(f"sqlite:///{home / 'diagevo.db'}", "hand", root=home)
    return home


def commands(home: Path) -> dict[str, str]:
    """The commands that supply what figures lack."""
    with closing(open_history(f"sqlite:///{home / 'diagevo.db'}", root=home)) as history:
        material = gather(history)
    drawn = {entry.name: draw(entry.name, [material]) for entry in FIGURES}
    return {name: one.command for name, one in drawn.items() if isinstance(one, Missing) and one.command}


def parses(command: str) -> bool:
    """Whether the program takes a command as it is written."""
    program, *words = shlex.split(command)
    path, leaf = max(
        (
            (path, leaf)
            for path, leaf in leaves(typer.main.get_command(load()))
            if tuple(words[: len(path)]) == path
        ),
        key=lambda found: len(found[0]),
    )
    leaf.make_context(path[-1], words[len(path) :], help_option_names=["-h", "--help"])
    return program == "diagevo"


def test_what_is_missing_comes_with_a_command_that_the_program_takes(hand: Path) -> None:
    missing = commands(hand)
    measured = "diagevo eval run all --run hand --round all"
    assert missing == {
        **dict.fromkeys(("intro", "performance"), measured),
        "difficulty": "diagevo eval labels --run hand --check check.csv",
        "coverage": "diagevo report build --run hand --embed",
    }
    assert all(parses(command) for command in missing.values())


def test_each_command_leads_to_the_next_until_the_questions_have_answers(ask: Ask, hand: Path) -> None:
    """Each step's command is the next one's cause, up to a human's answers in the exported file."""
    export = commands(hand)["difficulty"]
    assert ask(*shlex.split(export)[1:]).exit_code == 0
    assert commands(hand)["difficulty"] == export
    checked = list(csv.DictReader(io.StringIO(Path("check.csv").read_text(encoding="utf-8"))))
    with Path("check.csv").open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, list(checked[0]))
        writer.writeheader()
        writer.writerows(row | {"answer": "42"} for row in checked)
    assert ask(*shlex.split(export)[1:]).exit_code == 0
    measure = commands(hand)["difficulty"]
    assert measure == "diagevo eval run selfplay --run hand --round 0"
    assert parses(measure)


def test_a_played_world_lacks_the_difficulty_and_its_command_supplies_it(ask: Ask, trained: Path) -> None:
    missing = commands(trained)
    assert missing.pop("difficulty") == "diagevo eval run selfplay --run a --round 0"
    assert set(missing) <= {"case"}  # in two tiny rounds nothing may be promoted
    assert all(parses(command) for command in missing.values())
    assert ask("eval", "run", "selfplay", "--round", "0", "--limit", "4", "--samples", "2").exit_code == 0
    assert "difficulty" not in commands(trained)


def test_the_page_is_built_with_every_figure_and_table_beside_it(
    ask: Ask, trained: Path, tmp_path: Path
) -> None:
    built = ask("report", "build", "--to", tmp_path / "out", "--json")
    files = rows(built)
    assert files[0] == {"figure": "page", "file": str(tmp_path / "out" / "index.html")}
    assert all(Path(line["file"]).stat().st_size for line in files)
    suffixes = {Path(line["file"]).name for line in files if line["figure"] == "memory"}
    assert suffixes == {f"memory.{end}" for end in ("svg", "png", "csv", "vl.json", "txt")}
    tables = {Path(line["file"]).name for line in files if line["figure"] == "table-main"}
    assert tables == {"main.md", "main.csv"}
    assert f"open {tmp_path / 'out' / 'index.html'}" in built.stderr
    plain = ask("report", "build", "--to", tmp_path / "out")
    assert not {"\x1b", "\r"} & set(plain.stdout + plain.stderr)


def test_one_figure_comes_with_its_data(ask: Ask, hand: Path, tmp_path: Path) -> None:
    drawn = ask("report", "build", "--only", "memory", "--to", tmp_path, "--json")
    rows(drawn)
    data = list(csv.DictReader((tmp_path / "figures" / "memory.csv").open(encoding="utf-8")))
    assert [row["count"] for row in data if row["series"] == "Active"] == ["3", "2", "3", "3"]


def test_a_table_comes_as_markdown_and_csv(ask: Ask, trained: Path, tmp_path: Path) -> None:
    made = ask("report", "build", "--only", "table-main", "--to", tmp_path, "--json")
    files = {Path(line["file"]).suffix: Path(line["file"]) for line in rows(made)}
    text = {suffix: file.read_text(encoding="utf-8") for suffix, file in files.items()}
    assert text[".md"].startswith("**Reasoning accuracy (%).** Run a, at its")
    lines = list(csv.DictReader(io.StringIO(text[".csv"])))
    assert list(dict.fromkeys(line["method"] for line in lines)) == [
        "builtin:arithmetic, untrained",
        "builtin:arithmetic (Diag. rules:arithmetic)",
    ]
    assert {line["runs"] for line in lines} == {"1"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["build", "--only", "nothing"], 3, "no figure or table 'nothing'"),
        (["build", "--only", "nothing"], 3, "coverage, table-main, table-ablation,"),
        (["build", "--only", "difficulty"], 3, "hint: run: diagevo eval labels --run hand"),
        (["build", "--only", "memory", "--run", "nobody"], 3, "there is no run nobody"),
        (["build", "--with", "nobody"], 3, "there is no run nobody"),
        (["build", "--plan", "nothing"], 3, "no plan"),
        (["build", "--to", "taken/by/a/file"], 2, "cannot write taken/by/a/file"),
        (["build", "--only", "memory", "--to", "taken"], 2, "cannot write taken"),
        (["build", "--only", "table-main"], 3, "no measured run for the table main"),
        (["build", "--only", "table-main", "--with", "nobody"], 3, "there is no run nobody"),
        (["build", "--only", "table-ablation"], 3, "no plan"),
        (["build", "--only", "table-time", "--with", "b"], 2, "the table time is of one run"),
        (["build", "--only", "table-nothing"], 3, "no figure or table 'table-nothing'"),
        (["build", "--only", "memory", "--plan", "small"], 2, "name one: --only table-ablation"),
    ],
)
def test_bad_input(ask: Ask, hand: Path, arguments: list[str], code: int, says: str) -> None:
    Path("taken").write_text("a file")
    result = ask("report", *arguments)
    assert result.exit_code == code, result.output
    assert says in result.stderr
    assert json.loads(ask("report", *arguments, "--json").stdout)["error"]["message"]


def test_without_a_database_there_is_nothing_to_report(ask: Ask, home: Path) -> None:
    for arguments in (["build"], ["build", "--only", "memory", "--only", "table-main"]):
        assert ask("report", *arguments).exit_code == 5
    assert not home.exists()


def test_without_the_extra_the_missing_package_is_named_before_the_work(
    ask: Ask, hand: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [name for name in sys.modules if name == "altair" or name.startswith("altair.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.setattr("diagevo.report.report_data.gather", lambda *_: pytest.fail("it read the run"))
    for arguments in (["--only", "memory"], []):
        result = ask("report", "build", *arguments)
        assert result.exit_code == 4
        assert "pip install 'diagevo[report]'" in result.stderr
    assert rows(ask("runs", "list", "--json"))
