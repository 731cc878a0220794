"""Commands of evaluation through the program: a home folder, files of every benchmark, a served model."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from diagevo.evaluation.benchmarks import BENCHMARKS
from tests.cli.program import invoke
from tests.diagnosis.server import Answer, Server
from tests.evaluation.published import right_answers, write_folder
from tests.run.small import two_rounds

Ask = Callable[..., Result]


@pytest.fixture(autouse=True)
def _no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows of every benchmark."""
    return write_folder(tmp_path_factory.mktemp("data"), "jsonl")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def ask(home: Path) -> Ask:
    return lambda *arguments: invoke(*arguments, env={"DIAGEVO_HOME": str(home)})


@pytest.fixture(scope="session")
def trained_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_rounds(tmp_path_factory)


@pytest.fixture
def trained(trained_home: Path, home: Path) -> Path:
    """The home with a run of two real rounds in its database, to be changed at will."""
    return Path(shutil.copytree(trained_home, home))


def question_of(request: dict[str, Any]) -> str:
    return request["messages"][-1]["content"]


@pytest.fixture
def knowing(folder: Path) -> Iterator[Server]:
    """A served model that knows every answer."""
    known = {text: said for entry in BENCHMARKS for text, said in right_answers(entry.name, folder).items()}
    with Server(lambda request, before: Answer(known[question_of(request)])) as server:
        yield server


def rows(result: Result) -> Any:
    """The data of an envelope: rows, or a document."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["data"]
