"""`diagevo ingest` in processes of their own: beside a training that writes, stopped, and two at once."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagevo.memory.log.database import Database
from diagevo.memory.log.writer_lock import writer
from tests.cli.program import STARTED, clean_environment, invoke
from tests.ingest.conftest import DATA

pytestmark = pytest.mark.slow

ROLLOUTS = DATA / "verl" / "rollouts"


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """A training that has written two steps, and half of a third."""
    folder = tmp_path / "rollouts"
    folder.mkdir()
    for step in (1, 2):
        shutil.copy(ROLLOUTS / f"{step}.jsonl", folder)
    (folder / "3.jsonl").write_text((ROLLOUTS / "3.jsonl").read_text()[:-40])
    return folder


def started(training: Path, *more: str) -> subprocess.Popen[str]:
    command = [*STARTED, "ingest", "verl", str(training), "--run", "v", *more]
    env = clean_environment(DIAGEVO_HOME=str(training.parent))
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def following(training: Path) -> Iterator[subprocess.Popen[str]]:
    """`--follow`, once it has taken the steps that are whole, and waits for more."""
    process = started(training, "--follow", "--json")
    assert process.stderr is not None
    assert process.stderr.readline() == "step 1: 16 rollouts\n"
    assert process.stderr.readline() == "step 2: 16 rollouts\n"
    database = Database(f"sqlite:///{training.parent / 'diagevo.db'}")
    while writer(database, "v", training.parent / "v"):
        time.sleep(0.01)
    database.close()
    yield process
    process.kill()
    process.wait()


def test_ctrl_c_ends_a_followed_training_with_what_is_whole(
    training: Path, following: subprocess.Popen[str]
) -> None:
    following.send_signal(signal.SIGINT)
    told, said = following.communicate()
    assert following.returncode == 0, said
    assert "3.jsonl ends inside a line" in said
    found = json.loads(told)["data"]
    assert (found["steps"], found["rollouts"], found["cut"]) == (2, 32, ["3.jsonl"])
    shutil.copy(ROLLOUTS / "3.jsonl", training)
    env = {"DIAGEVO_HOME": str(training.parent)}
    later = invoke("ingest", "verl", training, "--run", "v", "--json", env=env)
    assert json.loads(later.stdout)["data"]["new_steps"] == 1


def test_another_ingest_writes_while_a_training_is_followed(
    training: Path, following: subprocess.Popen[str]
) -> None:
    """It waits without the lock: the other one takes the steps in between, and neither takes one twice."""
    shutil.copy(ROLLOUTS / "3.jsonl", training)
    env = {"DIAGEVO_HOME": str(training.parent)}
    other = started(training, "--json")
    said = other.communicate()[1]
    assert other.returncode == 0, said
    following.send_signal(signal.SIGINT)
    assert following.wait() == 0
    again = invoke("ingest", "verl", training, "--run", "v", "--json", env=env)
    assert json.loads(again.stdout)["data"]["new_steps"] == 0
    assert invoke("memory", "verify", "--deep", env=env).exit_code == 0


def test_two_at_once_take_each_step_once(training: Path) -> None:
    """The second waits for nobody: it is refused while the first writes, or finds what is there."""
    shutil.copy(ROLLOUTS / "3.jsonl", training)
    both = [started(training, "--json") for _ in range(2)]
    told = [process.communicate() for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 5]), told
    assert "Traceback" not in told[0][1] + told[1][1]
    new = sum(json.loads(out)["data"]["new_steps"] for out, _ in told if out and "data" in out)
    assert new == 3
    assert invoke("memory", "verify", "--deep", env={"DIAGEVO_HOME": str(training.parent)}).exit_code == 0
