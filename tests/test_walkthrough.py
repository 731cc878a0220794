"""CONTRIBUTING's steps for adding something, followed in a copy of the checkout."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import STARTED, clean_environment
from tests.memory.audit.played import play

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
SECTION = (
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Add a ")[2].partition("\n## ")[0]
)
STEPS = {part.partition("\n")[0]: part for part in SECTION.split("\n### ")[1:]}
BLOCK = re.compile(r"(?:<!-- (file|change): (\S+) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
COPIED = ("diagevo", "cli", "migrations", "examples", "tests/cli", "tests/policies")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, found before the installed one, some tests, and a run `first`."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "conftest.py", "forked.py", "once.py", "order.py"):
        shutil.copy(ROOT / "tests" / name, copy / "tests")
    shutil.copy(ROOT / "alembic.ini", copy)
    play(str(copy / "runs" / "diagevo.db"), "first", root=copy / "runs")
    return copy


def _changed(before: str, change: str) -> str:
    """`before` with the one place that the lines of ' ' and '-' stand at replaced by those of ' ' and '+'."""
    lines = change.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
    assert before.count(old) == 1, f"stands {before.count(old)} times:\n{old}"
    return before.replace(old, new)


def _run(line: str, cwd: Path) -> str:
    program, *arguments = shlex.split(line.removeprefix("$ "))
    command = [*({"diagevo": STARTED, "python": [sys.executable]}[program]), *arguments]
    # pytest closes the folder of its temporary files to other users, such as a PostgreSQL server's.
    environment = clean_environment(PYTHONPATH=str(cwd), DIAGEVO_HOME=str(cwd / "runs"), TMPDIR=str(cwd))
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def _played(step: str, checkout: Path, without: str | None = None) -> list[str]:
    """What its commands print; `without`: a file of the program that is left as it was."""
    said: list[str] = []
    for kind, path, language, block in BLOCK.findall(STEPS[step]):
        target = checkout / path
        if path and path == without:
            continue
        if kind == "change":
            target.write_text(_changed(target.read_text(encoding="utf-8"), block), encoding="utf-8")
        elif kind == "file":
            assert not target.exists()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block, encoding="utf-8")
        else:
            assert language == "console"
            for line in block.splitlines():
                if line.startswith("$ "):
                    said.append(_run(line, checkout))
                else:
                    assert line in said[-1]
    return said


@pytest.mark.parametrize("step", STEPS)
def test_the_steps_for_adding_it_work_as_they_stand(step: str, checkout: Path) -> None:
    assert _played(step, checkout)


CHANGES_STATE = "An event that changes state"
FILES = sorted({path for _, path, _, _ in BLOCK.findall(STEPS[CHANGES_STATE]) if path})


def test_an_event_that_changes_state_touches_at_most_six_files() -> None:
    assert len(FILES) <= 6


@pytest.mark.parametrize("without", FILES)
def test_each_file_of_an_event_that_changes_state_is_needed(without: str, tmp_path: Path) -> None:
    for name in ("diagevo", "cli", "migrations"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    play(str(tmp_path / "runs" / "diagevo.db"), "first", root=tmp_path / "runs", rounds=1)
    with pytest.raises(AssertionError, match=r"\$ diagevo memory relabel"):
        _played(CHANGES_STATE, tmp_path, without)


SETTING = "A setting that changes a number"
FOUR = sorted({path for kind, path, _, _ in BLOCK.findall(STEPS[SETTING]) if kind == "change"})


def test_a_setting_that_changes_a_number_touches_at_most_four_files_of_the_program() -> None:
    assert len(FOUR) <= 4


@pytest.mark.parametrize("without", FOUR)
def test_each_file_of_a_setting_that_changes_a_number_is_needed(without: str, tmp_path: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "conftest.py", "forked.py", "once.py", "order.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    with pytest.raises(AssertionError):
        _played(SETTING, tmp_path, without)


def test_all_are_walked_through() -> None:
    adding = ["A policy", "A rollout format", "A figure", "A command"]
    changing = ["A setting renamed", "A column of a view", CHANGES_STATE]
    assert list(STEPS) == [*adding, SETTING, "A method", *changing]
