"""The skill for agents: each of its commands runs on a run that was ingested and diagnosed."""

import shlex
from pathlib import Path

import pytest

from tests.cli.program import invoke
from tests.ingest.conftest import ingest_verl

SKILL = (Path(__file__).parents[2] / "docs" / "skill.md").read_text(encoding="utf-8")
COMMANDS = [line.removeprefix("$ diagevo ") for line in SKILL.splitlines() if line.startswith("$ diagevo ")]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("skill")
    ingest_verl(home, "verl")
    return f"sqlite:///{home}/diagevo.db"


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 11


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_skill_runs(database: str, command: str) -> None:
    result = invoke(*shlex.split(command), "--db", database)
    assert result.exit_code == 0, result.output
