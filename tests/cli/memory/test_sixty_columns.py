"""A narrow terminal: what is told at 200 columns is told at 60 and 80, in rows that fit, without a word cut,
and without a value broken over two rows.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.terminal import shown

COMMANDS = [
    *("runs list", "runs show", "runs diff played@1..played@2", "memory show", "memory show --tree"),
    *("memory why c1 --all", "memory why n1 --all"),
    *("memory why r1.q0", "memory replay --round 2", "memory replay", "memory log", "memory log c1"),
    *("memory schedule", "runs diff 1..2"),
    *("memory what-if --k 1", "memory what-if --tau 2", "memory verify", "db status"),
    *("config show", "config diff embedded qwen3-8b", "eval show"),
    *(
        "train --plan --profile qwen3-8b",
        "memory why n1",
        "doctor --for audit",
        "report build --only table-time --to r",
    ),
    *("config show --paper --profile embedded", "--help", "memory --help"),
]
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TOLD = re.compile(r"#\d+|\b[cnr]\d+(?:\.q\d+)?(?:\.a\d+)?\b|\b\d+/\d+\b|\b\d+\.\d+\b")
"""Positions, names and figures."""
_COMPARED = re.compile(r"\S+(?: [=→≥≤<>] \S+)+")


@pytest.mark.slow
@pytest.mark.parametrize("asked", COMMANDS)
def test_on_a_narrow_terminal_rows_fit_and_no_name_figure_or_value_is_lost_or_broken(
    played_home: Path, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = shutil.disk_usage(played_home)  # else what others write meanwhile changes the figure
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: room)

    def at(columns: int) -> str:
        out, code = shown(*asked.split(), env={"DIAGEVO_HOME": str(played_home)}, columns=columns)
        assert code == 0, out
        return _COLOUR.sub("", out).replace("\r", "")

    wide = at(200)
    at(40)
    for columns in (60, 80):
        narrow = at(columns)
        for line in narrow.split("\n"):
            longest = max(map(len, line.split()), default=0)
            fits = len(line) <= columns or longest > 40 or "diagevo " in line
            assert fits, line
        assert set(_TOLD.findall(wide)) - set(_TOLD.findall(narrow)) == set()
        assert [value for value in _values(wide) if value not in narrow] == []


def _values(wide: str) -> list[str]:
    """What stands in one row: every cell of a table, and what a sign holds together, of up to 24 cells. A
    dash says that there is no value."""
    found = [pair for line in wide.split("\n") for pair in _COMPARED.findall(line)]
    in_table = False
    for line in wide.split("\n"):
        in_table = "───" in line or (in_table and line.strip() != "")
        found += re.split(r"\s{2,}", line.strip()) if in_table and "───" not in line else []
    return [value for value in found if len(value) <= 24 and value != "–"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("report build --only nope", "coverage"),
        ("memory log --type Nope", "RoundCommitted"),
        ("memory query 'SELECT nope'", "no such column"),
        ("memory why c999", "there is no cause c999"),
        ("report build --only table-nope", "table-tau"),
    ],
)
def test_an_error_breaks_at_a_word_and_says_no_word_of_a_library(
    played_home: Path, asked: str, told: str
) -> None:
    out, code = shown(*shlex.split(asked), env={"DIAGEVO_HOME": str(played_home)}, columns=60)
    said = out.replace("\r", "")
    assert code in (2, 3)
    assert told in " ".join(said.split())
    assert all(len(line) <= 60 or "diagevo " in line for line in said.split("\n"))
    assert "Value error" not in said
