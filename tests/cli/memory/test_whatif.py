"""`memory what-if`: numbers within their bounds, the filter each round had, and what a rerun would change."""

import json
from pathlib import Path

import pytest

from tests.cli.memory.conftest import Ask
from tests.contracts.databases import Store
from tests.memory.audit.played import Player


def test_a_fork_is_judged_by_each_rounds_own_filter(change: Ask, home: Path) -> None:
    change("runs", "fork", "2", "--set", "filter.tau=4", "--name", "b")
    with Store(f"sqlite:///{home / 'diagevo.db'}", home).open("b") as memory:
        player = Player(memory)
        player.open(3)
        player.score(player.question(0, [("1", 8), ("2", 4)], "contested"))
        player.trained()
        player.commit()
    same = change("memory", "what-if", "--p-low", "1/4", "--run", "b", "--json")
    rows = json.loads(same.stdout)["data"]
    recorded = "exact for the recorded questions"
    assert {(row["kind"], row["status"]) for row in rows} == {("retention", recorded), ("replay", "exact")}
    assert [(r["kept"], r["was_kept"]) for r in rows if r["kind"] == "retention"] == [(2, 2), (3, 3), (0, 0)]
    assert [r["own"] for r in rows if r["kind"] == "retention"] == ["p_low = 1/4"] * 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--k", "1e400"], "k is 1e400: it must be above 0 and at most 1e308"),
        (["--tau", "1e999999999"], "tau is 1e999999999: it must be at least 1 and at most 1e308"),
        (["--p-low", "0.8"], "p_low 4/5 is above p_high 3/4 in round 1"),
    ],
)
def test_what_cannot_be_asked_is_refused(ask: Ask, arguments: list[str], said: str) -> None:
    done = ask("memory", "what-if", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_change_is_named_as_it_was_given(ask: Ask) -> None:
    shown = [
        json.loads(line)["change"]
        for number in ("1e-300", "1/3", "0.50")
        for line in ask(
            "memory", "what-if", "--k", number, "--round", "1", "--format", "jsonl"
        ).stdout.splitlines()
    ]
    assert shown == ["k = 1e-300", "k = 1/3", "k = 0.50"]


def test_from_where_on_a_rerun_is_needed_is_said_once(ask: Ask) -> None:
    said = ask("memory", "what-if", "--p-low", "0.6").stderr
    assert said.count("from round 1 on the solver would have trained on other questions") == 1
