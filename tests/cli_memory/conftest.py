"""The hand-played run as a user has it: a home folder with a database."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.program import invoke
from tests.memory_audit.played import play

Ask = Callable[..., Result]


@pytest.fixture(scope="session")
def played_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    play(f"sqlite:///{home / 'diagevo.db'}", "played", root=home)
    return home


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-user-settings"))
    for name in list(os.environ):
        if name.startswith("DIAGEVO_"):
            monkeypatch.delenv(name)


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
