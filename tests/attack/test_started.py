"""What the program starts looks for no module in the current folder, where Python looks first."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import diagevo
from diagevo.config.models import HardwareConfig
from diagevo.sampling.supervised import SupervisedProcess
from diagevo.training.ranks import accelerate_command

PACKAGE = Path(diagevo.__file__).parent
GRANDCHILD = """
import subprocess, sys
subprocess.run([sys.executable, "-m", "json.tool", "given.json"], check=True)
"""


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module for each name; whichever is imported leaves a file `mark`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    (tmp_path / "given.json").write_text('{"a": 1}')
    for name in ("json", "signal", "accelerate", "torch", "diagevo"):
        (tmp_path / f"{name}.py").write_text("open('mark', 'w').write(__name__)\nraise SystemExit(9)\n")
    return tmp_path


def finished(argv: list[str], folder: Path) -> tuple[int | None, str]:
    process = SupervisedProcess(argv, log=folder / "child.log")
    status = process.wait(500)
    process.stop()
    return status, process.tail()


def test_a_supervised_python_and_its_own_children_run_no_module_of_the_current_folder(traps: Path) -> None:
    subprocess.run([sys.executable, "-m", "json.tool", "given.json"], check=False)
    assert (traps / "mark").exists(), "the trap works"
    (traps / "mark").unlink()
    status, said = finished([sys.executable, "-c", GRANDCHILD], traps)
    assert (status, json.loads(said)) == (0, {"a": 1})
    assert not (traps / "mark").exists()


@pytest.mark.slow
def test_accelerate_starts_its_ranks_without_the_current_folder(traps: Path) -> None:
    hardware = HardwareConfig(device="cpu", processes=2, accelerate_config=Path("fsdp"))
    *launcher, module, _ = accelerate_command(hardware, traps / "spec.json", ("127.0.0.1", 29400))
    assert module == "diagevo.training.worker"
    cpu = ["--cpu", "--num_processes", "1", "json.tool", "given.json"]
    status, said = finished([*launcher, *cpu], traps)
    assert not (traps / "mark").exists(), said
    assert status == 0, said


def test_every_python_that_is_started_is_safe_by_its_flag_or_by_its_supervisor() -> None:
    unsafe = set()
    cli = Path(import_module("diagevo.cli").__file__ or "").parent
    for file in [*PACKAGE.rglob("*.py"), *cli.rglob("*.py")]:
        text = file.read_text(encoding="utf-8")
        if re.search(r'[(\[]sys\.executable, "-(?!P")', text) and "SupervisedProcess" not in text:
            unsafe.add(file.name)
    assert not unsafe
    assert '"-P", "-m", "diagevo.answers' in (PACKAGE / "answers/algebra.py").read_text(encoding="utf-8")
