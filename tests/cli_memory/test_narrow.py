"""Rows on a narrow terminal: a table while its words fit, then in parts; no word is ever cut."""

import re
from pathlib import Path

import pytest

from tests.cli.terminal import shown
from tests.memory_audit.played import C1, C2, C3, C4

ROUNDS = ("exact", "open-loop", "open-loop", "open-loop")


def _lines(home: Path, columns: int, *arguments: str) -> list[str]:
    out, code = shown(*arguments, "--no-color", "-q", env={"DIAGEVO_HOME": str(home)}, columns=columns)
    assert code == 0, out
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in out.splitlines()]
    assert max(map(len, lines)) <= columns
    return lines


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_table_without_room_comes_in_parts_whose_rows_stay_rows(played_home: Path, columns: int) -> None:
    """Each part names its rows, and what was stands beside what is."""
    lines = [line.split() for line in _lines(played_home, columns, "memory", "what-if", "--k", "1")]
    heads = [line for line in lines if line[:2] == ["change", "round"]]
    rows = [line[3:] for line in lines if line[:3] == ["k", "=", "1"]]
    assert len(heads) > 1
    assert len(rows) == 4 * len(heads)
    assert tuple(row[1] for row in rows[:4]) == ROUNDS
    told = [word for head in heads for word in head[2:]]
    assert told[:9] == ["status", "F", "was", "ε", "next", "was", "Active", "was", "Mastered"]
    assert all(head[2] != "was" for head in heads)


def test_what_if_is_a_table_where_its_words_fit(played_home: Path) -> None:
    lines = _lines(played_home, 100, "memory", "what-if", "--k", "1")
    assert lines[1].split()[:4] == ["change", "round", "status", "F"]
    assert sum("open-loop" in line for line in lines) == 3


def test_runs_are_named_whole_however_narrow_the_terminal_is(played_home: Path) -> None:
    """At 80 columns one space between two columns leaves room for every word, at 40 each part names them."""
    narrow = _lines(played_home, 40, "runs", "list")
    assert sum(line.split()[:1] == ["played"] for line in narrow) >= 3
    lines = _lines(played_home, 80, "runs", "list")
    assert any(line.split()[:4] == ["played", "4", "–", "139"] for line in lines)


def test_a_table_that_must_wrap_wraps_between_words(played_home: Path) -> None:
    lines = _lines(played_home, 60, "memory", "show", "--round", "3")
    assert ["cause", "node", "state", "f", "p", "description"] in [line.split() for line in lines]
    shown = {word for line in lines for word in line.split()}
    assert shown >= {word for text in (C1, C2, C3, C4) for word in text.split()}


def test_a_hash_may_be_cut_but_not_where_it_names_the_row(played_home: Path) -> None:
    def asked(columns: str) -> list[str]:
        return _lines(played_home, 60, "memory", "query", f"SELECT {columns}")

    number, text = "7 AS number", "printf('%064d', 7) AS text"
    assert asked(f"{number}, {text}")[1].split() == ["number", "text"]
    assert asked(f"{text}, {number}")[0] == "text:"
