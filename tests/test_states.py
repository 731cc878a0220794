"""A state of a cause that is new: whoever reads states must say what it means there."""

import json
import re
import shutil
import subprocess
import sys
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


def test_every_state_has_its_colour() -> None:
    css = (ROOT / "diagevo/view/static/view.css").read_text()
    for state in get_args(CauseState):
        assert re.search(rf"\.state\.{state}, \.cell\.{state} \{{", css), state
