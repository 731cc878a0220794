"""`memory show` in its order, and `memory query` from stdin."""

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.cli.memory.conftest import Ask
from tests.cli.program import load


def test_a_person_a_spreadsheet_and_a_program_are_shown_the_same_causes_the_most_frequent_first(
    ask: Ask,
) -> None:
    shown = ("memory", "show", "--round", "3")
    named = ["c2", "c1", "c4", "c3"]  # f = 3, 1, 1, 0
    assert [cause["id"] for cause in json.loads(ask(*shown, "--json").stdout)["data"]["causes"]] == named
    rows = csv.DictReader(io.StringIO(ask(*shown, "--format", "csv").stdout))
    assert [row["id"] for row in rows] == named
    assert [line.split()[0] for line in ask(*shown).stdout.splitlines()[1:]] == named


SQL = "SELECT round, failures FROM v_round WHERE run_id = :run ORDER BY round LIMIT 1"


def _piped(home: Path, statement: bytes) -> Result:
    return CliRunner().invoke(
        load(), ["memory", "query", "-"], input=statement, env={"DIAGEVO_HOME": str(home)}
    )


def test_a_statement_comes_from_stdin(ask: Ask, played_home: Path) -> None:
    typed = ask("memory", "query", SQL)
    assert typed.stdout.splitlines()[1].split() == ["1", "4"]
    statement = f"\ufeff-- of ö\n{SQL};\n".encode()
    assert _piped(played_home, statement).stdout == typed.stdout


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (b"SELECT '\xe9'", "stdin is not UTF-8 text"),
        (bytes(2**20 + 1), "stdin is too long for a statement"),
        (b"", "the database refuses it"),
    ],
)
def test_what_is_no_statement_is_refused(played_home: Path, statement: bytes, says: str) -> None:
    refused = _piped(played_home, statement)
    assert refused.exit_code == 2, refused.output
    assert says in refused.stderr


@pytest.mark.parametrize("arguments", [("-", "--views"), ()])
def test_a_statement_or_views_is_needed_and_not_both(ask: Ask, arguments: tuple[str, ...]) -> None:
    refused = ask("memory", "query", *arguments)
    assert refused.exit_code == 2
    assert "give a statement or --views" in refused.stderr
