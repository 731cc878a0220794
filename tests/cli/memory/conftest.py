"""The hand-played run as a user has it: a home folder with a database."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.program import invoke
from tests.memory.audit.played import play

Ask = Callable[..., Result]


@pytest.fixture(scope="session")
def played_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    play(f"sqlite:///{home / 'diagevo.db'}", "played", root=home)
    return home


@pytest.fixture
def ask(played_home: Path) -> Ask:
    """Ask the shared run: commands that only read."""
    return lambda *arguments: invoke(*arguments, env={"DIAGEVO_HOME": str(played_home)})


@pytest.fixture
def home(played_home: Path, tmp_path: Path) -> Path:
    """A copy of the home that a test may change."""
    return Path(shutil.copytree(played_home, tmp_path / "home"))


@pytest.fixture
def change(home: Path) -> Ask:
    """Commands on the copy."""
    return lambda *arguments: invoke(*arguments, env={"DIAGEVO_HOME": str(home)})
