"""A run has one name in a command: the argument's, or that of --run."""

import pytest

from tests.cli.memory.conftest import Ask


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("runs show played", "played"),
        ("runs fork played --round 1", "played"),
        ("runs export played --to trackio", "played"),
        ("runs diff played@1..played@2", "played"),
        ("report build --only table-main --runs played", "played"),
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
