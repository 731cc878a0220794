"""The skill for agents: each of its commands runs on a run that was ingested and diagnosed."""

import shlex
from pathlib import Path

import pytest

from tests.cli.program import invoke
from tests.ingest.conftest import DATA, diagnose_by_rules

SKILL = (Path(__file__).parents[2] / "docs" / "skill.md").read_text(encoding="utf-8")
COMMANDS = [line.removeprefix("$ diagevo ") for line in SKILL.splitlines() if line.startswith("$ diagevo ")]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('skill')}/diagevo.db"
    ingested = ["ingest", "verl", DATA / "verl" / "with_uid", "--run", "verl", "--steps-per-round", "2"]
    assert invoke(*ingested, "--db", url).exit_code == 0
    diagnose_by_rules(url, "verl")
    return url


def test_there_are_commands() -> None:
    assert len(COMMANDS) == 11


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_skill_runs(database: str, command: str) -> None:
    result = invoke(*shlex.split(command), "--db", database)
    assert result.exit_code == 0, result.output
