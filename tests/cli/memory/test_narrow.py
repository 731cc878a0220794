"""Rows on a narrow terminal: a table while its words fit, else a card a row; no word is ever cut."""

import re
from pathlib import Path

import pytest

from tests.cli.terminal import shown
from tests.memory.audit.played import C1, C2, C3, C4

ROUNDS = ("exact", "open-loop", "open-loop", "open-loop")


def _lines(home: Path, columns: int, *arguments: str) -> list[str]:
    out, code = shown(*arguments, "--no-color", "-q", env={"DIAGEVO_HOME": str(home)}, columns=columns)
    assert code == 0, out
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in out.splitlines()]
    assert max(map(len, lines)) <= columns
    return lines


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_where_a_table_has_no_room_each_row_is_a_card(played_home: Path, columns: int) -> None:
    """A card has what the row says, each value beside its heading, and what was beside what is."""
    lines = _lines(played_home, columns, "memory", "what-if", "--k", "1")
    assert lines.count("change k = 1") == 4
    assert not any("───" in line for line in lines)
    cards = " ".join(line.strip() for line in lines).split("change k = 1")[1:]
    told = [[item.strip() for item in card.replace("·", "  ").split("  ") if item.strip()] for card in cards]
    for card, status in zip(told, ROUNDS, strict=True):
        said = " ".join(card)
        assert f"status {status} F" in said
        assert "ε next" in said
        assert said.index("Active") < said.index("was", said.index("Active")) < said.index("Mastered")


def test_what_if_is_a_table_where_its_words_fit(played_home: Path) -> None:
    lines = _lines(played_home, 100, "memory", "what-if", "--k", "1")
    assert ["change", "round", "status", "F"] in [line.split()[:4] for line in lines[:3]]
    assert sum("open-loop" in line for line in lines) == 3


def test_runs_are_named_whole_however_narrow_the_terminal_is(played_home: Path) -> None:
    for columns in (40, 60, 80):
        assert "run played" in _lines(played_home, columns, "runs", "list")
    lines = _lines(played_home, 120, "runs", "list")
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
    assert asked(f"{number}, {text}")[0].split() == ["number", "text"]
    assert asked(f"{text}, {number}")[0] == "text"
