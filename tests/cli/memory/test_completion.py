"""A tab in a real shell: the program's own script, and what it offers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import clean_environment

pytestmark = pytest.mark.slow

BASH = """eval "$(_DIAGEVO_COMPLETE=source_bash diagevo)"
for typed in "$@"; do
  read -r -a COMP_WORDS <<< "$typed"
  [[ $typed == *" " ]] && COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _diagevo_completion diagevo
  echo "${COMPREPLY[*]}"
done
"""
OFFERED = {
    "diagevo memory wh": ["why", "what-if"],
    "diagevo memory what-if --th": ["--theta-up"],
}


def _environment(home: Path, **more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return clean_environment(PATH=path, DIAGEVO_HOME=str(home), **more)


def test_bash_offers_what_there_is(played_home: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", *OFFERED],
        env=_environment(played_home),
        capture_output=True,
        text=True,
        check=False,
    )
    offered = [line.split() for line in done.stdout.split("\n")[:-1]]
    assert dict(zip(OFFERED, offered, strict=True)) == OFFERED
    assert done.stderr == ""


@pytest.mark.parametrize(("shell", "sep"), [("zsh", ":"), ("fish", "\t")])
def test_other_shells_are_told_what_each_thing_is(played_home: Path, shell: str, sep: str) -> None:
    program = Path(sys.executable).parent / "diagevo"
    script = subprocess.run(
        [program],
        env=_environment(played_home, _DIAGEVO_COMPLETE=f"source_{shell}"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"complete_{shell}" in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True, check=False).returncode == 0
    told = subprocess.run(
        [program],
        env=_environment(
            played_home,
            _DIAGEVO_COMPLETE=f"complete_{shell}",
            _TYPER_COMPLETE_ARGS="diagevo memory wh",
            _TYPER_COMPLETE_FISH_ACTION="get-args",
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Explain a cause" in told.stdout
    assert sep in told.stdout
