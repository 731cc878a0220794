"""Points of a log that are not written yet, and names that a run cannot have or that are empty."""

import json
from pathlib import Path

import pytest

import diagevo
from diagevo.errors import ConfigError
from tests.cli.memory.conftest import Ask
from tests.cli.program import invoke

EMPTY_NAMES = (
    ("memory", "show", "--run", ""),
    ("memory", "show", "--db", ""),
    ("train", "--plan", "--profile", ""),
    ("train", "--plan", "--run", ""),
    ("runs", "show", ""),
    ("runs", "diff", "..played"),
    ("runs", "fork", "@2"),
    ("runs", "fork", "2", "--name", ""),
)


@pytest.mark.parametrize(
    "command",
    [("memory", "replay"), ("memory", "show"), ("memory", "log"), ("runs", "export", "-o", "bundle")],
)
def test_a_position_beyond_the_end_of_the_log_is_not_found(
    ask: Ask, command: tuple[str, ...], tmp_path: Path
) -> None:
    done = ask(*command, "--at", "140")
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr == ("error: position 140 is not written yet\nhint: the log ends at position 139\n")
    assert list(tmp_path.iterdir()) == []
    assert ask(*command, "--at", "139").exit_code == 0


def test_a_position_of_another_run_after_the_end_of_this_one_is_written(change: Ask) -> None:
    assert change("runs", "fork", "2", "--name", "b").exit_code == 0
    done = change("memory", "replay", "--run", "played", "--at", "150", "--json")
    assert json.loads(done.stdout)["as_of"] == {"round": 4, "position": 150}


@pytest.mark.parametrize(
    "command",
    [
        ("runs", "fork", "played@2", "--name", "latest"),
        ("runs", "import", "bundle", "--name", "latest"),
        ("train", "--run", "latest", "--display", "none", "--until", "1:challenger"),
    ],
    ids=lambda command: command[0],
)
def test_no_run_is_named_latest(change: Ask, home: Path, command: tuple[str, ...]) -> None:
    if command[0] == "train":
        pytest.importorskip("torch", reason="needs the extra train: torch is not installed")
    change("runs", "export", "-o", "bundle")
    before = json.loads(change("runs", "list", "--json").stdout)["data"]
    done = change(*command)
    assert done.exit_code == 2
    assert "'latest' cannot name a run: it means the one that was written to last" in done.stderr
    assert "\nhint: give it another name" in done.stderr
    assert json.loads(change("runs", "list", "--json").stdout)["data"] == before
    assert not (home / "latest").exists()
    with pytest.raises(ConfigError, match="cannot name a run"):
        diagevo.open(str(home / "diagevo.db"), "latest")


@pytest.mark.parametrize("command", EMPTY_NAMES)
def test_an_empty_name_is_not_taken_for_none(change: Ask, command: tuple[str, ...]) -> None:
    before = change("runs", "list", "--json").stdout
    done = change(*command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "\nhint: " in done.stderr
    assert change("runs", "list", "--json").stdout == before


def test_a_bundle_is_not_taken_under_an_empty_name(ask: Ask, tmp_path: Path) -> None:
    assert ask("runs", "export", "-o", tmp_path / "bundle").exit_code == 0
    done = invoke("runs", "import", tmp_path / "bundle", "--name", "", "--db", tmp_path / "new.db")
    assert done.exit_code == 2
    assert "'' cannot name a run" in done.stderr
    assert json.loads(invoke("runs", "list", "--db", tmp_path / "new.db", "--json").stdout)["data"] == []


def test_what_a_run_has_in_its_log_is_not_shown_for_what_other_options_ask() -> None:
    """A run that a variable names gives way to what was typed; both typed contradict each other."""
    shown = invoke("config", "show", "--profile", "embedded", "--json", env={"DIAGEVO_RUN": "nobody"})
    assert '"key": "world"' in shown.stdout
    refused = invoke("config", "show", "--run", "nobody", "--set", "seed=3")
    assert refused.exit_code == 2
    assert "--run shows the configuration in the run's log; --set has no effect on it" in refused.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("runs show played", "played"),
        ("runs fork played@1", "played"),
        ("runs export played --to trackio", "played"),
        ("runs diff played@1..played@2", "played"),
    ],
)
def test_two_names_are_refused_and_none_of_them_is_taken_silently(ask: Ask, words: str, named: str) -> None:
    result = ask(*words.split(), "--run", "other")
    assert (result.exit_code, result.stdout) == (2, "")
    said = f"error: {named} and --run other were given\nhint: name the run only once\n"
    assert result.stderr == said


def test_the_same_name_twice_and_a_variable_beside_an_argument_are_no_contradiction(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask("runs", "show", "played", "--run", "played").exit_code == 0
    monkeypatch.setenv("DIAGEVO_RUN", "other")
    assert ask("runs", "show", "played").exit_code == 0


def test_where_a_run_was_configured_anew_the_screens_say_what_the_views_have(change: Ask) -> None:
    """F₁ = 4, F = 5 after round 3: ε₄ is 4/(4 + 5/(1/2)) = 2/7 as committed, 4/(4 + 5) = 4/9 with k = 1."""
    assert change("runs", "fork", "played@3", "--name", "b", "--set", "schedule.k=1").exit_code == 0
    stored = "SELECT epsilon_committed FROM v_round WHERE run_id = :run ORDER BY round DESC LIMIT 1"
    assert "2/7" in change("memory", "query", stored, "--run", "b", "--format", "csv").stdout
    for name in ("show", "replay", "schedule"):
        shown = change("memory", name, "--run", "b", "--json")
        assert "4/9" in shown.stdout
        assert "epsilon_committed = 2/7 and probability_committed = f/F" in shown.stderr
        assert "configured anew" not in change("memory", name, "--run", "played").stderr
