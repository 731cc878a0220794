"""`memory show` with fewer causes, and `memory query` from a file and from stdin."""

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.memory.conftest import Ask
from tests.cli.program import load


def _causes(ask: Ask, *arguments: str) -> list[str]:
    """The causes that a person, a spreadsheet and a program are shown: the same, in the same order."""
    told = ask("memory", "show", *arguments, "--json")
    assert told.exit_code == 0, told.output
    named = [cause["id"] for cause in json.loads(told.stdout)["data"]["causes"]]
    rows = csv.DictReader(io.StringIO(ask("memory", "show", *arguments, "--format", "csv").stdout))
    assert [row["id"] for row in rows] == named
    lines = ask("memory", "show", *arguments).stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == named
    return named


@pytest.mark.parametrize(
    ("arguments", "causes"),
    [
        ((), ["c2", "c1", "c4", "c3"]),  # f = 3, 1, 1, 0
        (("--top", "1"), ["c2"]),
        (("--sort", "cause"), ["c1", "c2", "c3", "c4"]),
        (("--sort", "node"), ["c1", "c3", "c2", "c4"]),
        (("--state", "mastered"), ["c3"]),
        (("--state", "active", "--sort", "cause", "--top", "1"), ["c1"]),
        (("--grep", "CARRY"), ["c1"]),
        (("--grep", "signs and"), ["c2", "c4"]),  # of their node
        (("--grep", ".*"), []),  # a text, and no pattern
        (("--grep", "ſigns"), ["c2", "c4"]),  # ſ is an s in any case
    ],
)
def test_causes_are_chosen_by_state_and_text_and_put_in_order(
    ask: Ask, arguments: tuple[str, ...], causes: list[str]
) -> None:
    assert _causes(ask, "--round", "3", *arguments) == causes


def test_what_is_left_out_is_counted_and_the_memory_stays_whole(ask: Ask) -> None:
    shown = ask("memory", "show", "--state", "mastered")
    assert shown.stderr.strip().endswith("; shown: 1 of 4 causes")
    whole, part = (
        json.loads(ask("memory", "show", *more, "--json").stdout)["data"] for more in ((), ("--top", "1"))
    )
    assert {key: part[key] for key in part if key != "causes"} == {
        key: whole[key] for key in whole if key != "causes"
    }
    tree = ask("memory", "show", "--tree", "--grep", "carry").stdout
    assert "c1" in tree
    assert "c2" not in tree
    assert "n2" not in tree


SQL = "SELECT round, failures FROM v_round WHERE run_id = :run ORDER BY round LIMIT 1"


def test_a_statement_comes_from_a_file_or_from_stdin(ask: Ask, played_home: Path) -> None:
    Path("asked.sql").write_text("\ufeff-- of ö\n" + SQL + ";\n", encoding="utf-8")
    typed = ask("memory", "query", SQL)
    assert typed.stdout.splitlines()[1].split() == ["1", "4"]
    assert ask("memory", "query", "--file", "asked.sql").stdout == typed.stdout
    piped = CliRunner().invoke(
        load(), ["memory", "query", "-"], input=SQL, env={"DIAGEVO_HOME": str(played_home)}
    )
    assert piped.stdout == typed.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--file", "nowhere.sql"), "cannot read nowhere.sql"),
        (("--file", "."), "cannot read ."),
        (("--file", "latin.sql"), "latin.sql is not UTF-8 text"),
        (("--file", "/dev/zero"), "/dev/zero is too long for a statement"),
        (("--file", "empty.sql"), "the database refuses it"),
        (("SELECT 1", "--file", "empty.sql"), "give one of them"),
        (("-", "--views"), "give one of them"),
        ((), "give one of them"),
    ],
)
def test_what_is_no_statement_is_refused(ask: Ask, arguments: tuple[str, ...], says: str) -> None:
    Path("latin.sql").write_bytes(b"SELECT '\xe9'")
    Path("empty.sql").touch()
    refused = ask("memory", "query", *arguments)
    assert refused.exit_code == 2, refused.output
    assert says in refused.stderr
