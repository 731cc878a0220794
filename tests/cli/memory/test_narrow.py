"""Rows on a narrow terminal: a table while its words fit, else a card a row; no word is ever cut."""

import re
from pathlib import Path

import pytest

from tests.cli.terminal import shown
from tests.memory.audit.played import C1, C2, C3, C4

ROUNDS = ("exact", "open-loop", "open-loop", "open-loop")
WHAT_IF = "round status F ε next Active Mastered promoted reactivated"
EPSILON = ("0.333 → 0.500", "0.286 → 0.444", "0.286 → 0.444", "0.400 → 0.571")


def _lines(home: Path, columns: int, *arguments: str) -> list[str]:
    out, code = shown(*arguments, "--no-color", "-q", env={"DIAGEVO_HOME": str(home)}, columns=columns)
    assert code == 0, out
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in out.splitlines()]
    assert max(map(len, lines)) <= columns
    return lines


@pytest.mark.parametrize("columns", [40, 60])
def test_where_a_table_has_no_room_each_row_is_a_card(played_home: Path, columns: int) -> None:
    """A card has what the row says, each value beside its heading, and nothing where there is no value."""
    lines = _lines(played_home, columns, "memory", "what-if", "--k", "1")
    assert lines[0] == "k = 1"
    assert not any("───" in line for line in lines)
    assert [line for line in lines if line.startswith("round ")] == [f"round {n}" for n in (1, 2, 3, 4)]
    cards = re.split(r"round \d ", " ".join(line.strip() for line in lines))[1:]
    for card, status, epsilon in zip(cards, ROUNDS, EPSILON, strict=True):
        assert card.startswith((f"status {status} · F ", f"status {status} F "))
        assert f"ε next {epsilon}" in card
        assert ("promoted" in card, "–" in card) == (status != "exact", False)


def test_what_if_is_a_table_on_80_columns_with_what_was_beside_what_is(played_home: Path) -> None:
    lines = _lines(played_home, 80, "memory", "what-if", "--k", "1")
    assert lines[:2] == ["k = 1", ""]
    assert lines[2].split() == WHAT_IF.split()
    assert [line.split()[3:6] for line in lines[4:8]] == [epsilon.split() for epsilon in EPSILON]


def test_runs_are_a_table_on_80_columns_and_named_whole_on_a_narrower_terminal(played_home: Path) -> None:
    for columns in (40, 60):
        assert "run played" in _lines(played_home, columns, "runs", "list")
    lines = _lines(played_home, 80, "runs", "list")
    assert any(line.split()[:3] == ["played", "4", "139"] for line in lines)


def test_a_column_that_no_row_has_a_value_for_is_left_out_but_not_of_a_query(played_home: Path) -> None:
    assert not any("mean@k" in line for line in _lines(played_home, 120, "runs", "list"))
    assert "empty" in _lines(played_home, 80, "memory", "query", "SELECT 1 AS one, NULL AS empty")[0]


def test_a_table_that_must_wrap_wraps_between_words(played_home: Path) -> None:
    lines = _lines(played_home, 60, "memory", "show", "--round", "3")
    assert ["cause", "node", "state", "f", "p", "description"] in [line.split() for line in lines]
    shown = {word for line in lines for word in line.split()}
    assert shown >= {word for text in (C1, C2, C3, C4) for word in text.split()}


def test_a_hash_may_be_cut_but_not_where_it_names_the_row(played_home: Path) -> None:
    def asked(columns: str) -> list[str]:
        return _lines(played_home, 60, "memory", "query", f"SELECT {columns}")

    number, text = "7 AS number", "printf('%064d', 7) AS text"
    assert asked(f"{number}, {text}")[0].split() == ["number", "text"]
    assert asked(f"{text}, {number}")[0] == "text"
