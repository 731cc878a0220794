"""A state of a cause that is new: whoever reads states must say what it means there."""

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from diagevo.equations.states import CauseState

ROOT = Path(__file__).parents[1]
READERS = (
    "diagevo/equations/states.py",
    "diagevo/memory/state/model.py",
    "diagevo/memory/compare/memory_diff.py",
    "diagevo/memory/stories/story_wording.py",
)
"""Those in which states differ; what follows from them reads them there."""
NAMED = {
    "diagevo/memory/memory.py": ["dismiss", "reinstate"],
    "diagevo/memory/state/fold.py": ["_dismissed", "_reinstated"],
    "diagevo/memory/compare/memory_diff.py": ["_what", "_what"],
}
"""Who may ask for one state by its name: what brings a cause into it or out of it; and a cause that is new
names its state, whichever it is, beside pairs of states that pyright checks."""


@pytest.mark.slow
def test_pyright_names_every_reader_that_leaves_a_new_state_out(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "diagevo", tmp_path / "diagevo", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    states = tmp_path / READERS[0]
    states.write_text(states.read_text().replace('"dismissed"]', '"dismissed", "parked"]', 1))
    command = [Path(sys.executable).parent / "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, *READERS], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)["generalDiagnostics"]
    named = {Path(one["file"]).relative_to(tmp_path.resolve()).as_posix() for one in found}
    assert named == set(READERS), done.stdout


def comparisons(file: Path) -> Iterator[str]:
    """The functions that compare something with a state's name, one for each comparison."""
    for function in ast.walk(ast.parse(file.read_text("utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Compare):
                said = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
                if said & set(get_args(CauseState)):
                    yield function.name


def test_nobody_compares_a_state_by_its_name_where_pyright_would_miss_a_new_one() -> None:
    found = {
        file.relative_to(ROOT).as_posix(): names
        for folder in ("diagevo", "cli")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if (names := sorted(comparisons(file)))
    }
    assert found == NAMED


def test_no_statement_and_no_page_names_a_state() -> None:
    """In Python only SQL has single quotes; pages take their states from `CauseState`."""
    names = "|".join(get_args(CauseState))
    for pattern, quotes in (("*.py", "'"), ("*.html", "['\"]")):
        named = re.compile(f"{quotes}({names}){quotes}")
        for folder in ("diagevo", "cli", "migrations"):
            for file in (ROOT / folder).rglob(pattern):
                assert not named.findall(file.read_text("utf-8")), file


def test_every_state_has_its_colour() -> None:
    css = (ROOT / "diagevo/view/static/view.css").read_text()
    for state in get_args(CauseState):
        assert re.search(rf"\.state\.{state}, \.cell\.{state} \{{", css), state
