"""The draws of the next round in a file, while another process trains: recorded rollouts of verl always, and
verl's and prime-rl's own classes where they are installed (`make steered`)."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import diagevo
from diagevo.errors import ServiceError
from diagevo.ingest.steering import DRAWS, Steering
from diagevo.integrations.next_draws import NextDraws
from tests.cli.program import STARTED, clean_environment, invoke
from tests.ingest.conftest import DATA
from tests.memory.play import first_round, opened

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
QUESTIONS = DATA / "questions.json"
VERL = ROOT / ".venv-verl"
PRIME = ROOT / ".venv-prime-rl"
LOCAL = ("--set", "roles.diagnostician.engine=local")


@contextmanager
def followed(folder: Path, format: str, at: str, dataset: Path) -> Iterator[subprocess.Popen[str]]:
    """`ingest --follow --steer` in a process of its own, once it serves; stopped by Ctrl-C."""
    command = [*STARTED, "ingest", format, at, "--run", "v", "--follow", "--steer", "next.json", *LOCAL]
    command += ["--steps-per-round", "2", "--dataset", str(dataset)]
    with (folder / "said.txt").open("a") as said:
        env = clean_environment(DIAGEVO_HOME=str(folder))
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=said, stderr=said, text=True)
        try:
            until(lambda: (folder / "next.json").exists(), process)
            yield process
            process.send_signal(signal.SIGINT)
            assert process.wait(60) in (0, -signal.SIGKILL), (folder / "said.txt").read_text()
        finally:
            process.kill()
            process.wait()


def until(holds: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


def served(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "next.json").read_text(encoding="utf-8"))


def rollouts(step: int) -> Iterator[tuple[int, float, str]]:
    """Row of the data set, score and line of verl's rollouts of a step. Of odd rows only what passed."""
    rows = [row["prompt"][0]["content"] for row in json.loads(QUESTIONS.read_text(encoding="utf-8"))]
    for line in (DATA / "verl" / "rollouts" / f"{step}.jsonl").read_text(encoding="utf-8").splitlines():
        row, score = rows.index((rollout := json.loads(line))["input"].strip()), rollout["score"]
        if row % 2 == 0 or score > 0.5:
            yield row, score, line


def wrote(folder: Path, step: int) -> None:
    """The training writes a step, as a whole."""
    target = folder / "rollouts" / f"{step}.jsonl"
    part = target.with_suffix(".part")
    part.write_text("".join(f"{line}\n" for _, _, line in rollouts(step)), encoding="utf-8")
    part.rename(target)


def failing(last: int) -> set[int]:
    """Rows of the data set that failed in these steps, by the files alone."""
    return {row for step in range(1, last + 1) for row, score, _ in rollouts(step) if score < 0.5}


def test_a_training_gets_the_draws_of_the_next_round_while_it_trains(tmp_path: Path) -> None:
    (tmp_path / "rollouts").mkdir()
    with followed(tmp_path, "verl", "rollouts", QUESTIONS) as process:
        first = served(tmp_path)
        assert (first["round"], first["epsilon"], first["causes"], len(first["draws"])) == (1, "1", [], DRAWS)
        assert {draw["mode"] for draw in first["draws"]} == {"free"}
        assert {draw["row"] for draw in first["draws"]} == set(range(8))
        draws = NextDraws(tmp_path / "next.json")
        assert [next(draws)["row"] for _ in range(3)] == [draw["row"] for draw in first["draws"][:3]]
        for step in (1, 2, 3):
            wrote(tmp_path, step)
        until(lambda: served(tmp_path)["round"] == 2, process)
        second = served(tmp_path)
        assert next(draws) == second["draws"][0]  # without being told
        page = (ROOT / "docs" / "howto" / "steer.md").read_text(encoding="utf-8")
        [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        shown = subprocess.check_output([sys.executable, "-c", f"{block}print(row)"], cwd=tmp_path)
        assert int(shown) == second["draws"][0]["row"]
        assert (draws.round, draws.epsilon) == (2, second["epsilon"])
        process.kill()  # amid its waiting
    kept = (tmp_path / "next.json").read_bytes()
    (tmp_path / "next.json").unlink()
    with followed(tmp_path, "verl", "rollouts", QUESTIONS) as process:
        assert (tmp_path / "next.json").read_bytes() == kept
        for step in (4, 5):
            wrote(tmp_path, step)
        until(lambda: served(tmp_path)["round"] == 3, process)
    third = served(tmp_path)
    with diagevo.open(f"sqlite:///{tmp_path / 'diagevo.db'}", run="v") as memory:
        for found in (second, third):
            schedule = memory.schedule(found["round"])
            assert Fraction(found["epsilon"]) == schedule.epsilon < 1
            drawn = schedule.draw(DRAWS, seed=memory.state.settings.seed)
            assert [draw["cause_id"] for draw in found["draws"]] == [draw.cause_id for draw in drawn]
            assert sum(Fraction(cause["p"]) for cause in found["causes"] if cause["p"]) == 1
    for found, last in ((second, 2), (third, 4)):
        aimed = {draw["row"] for draw in found["draws"] if draw["mode"] != "free"}
        assert aimed
        assert aimed <= failing(last) < set(range(8))
        assert {draw["row"] for draw in found["draws"] if draw["mode"] == "free"} == set(range(8))
    checked = invoke("memory", "verify", "--deep", "--run", "v", "--db", tmp_path / "diagevo.db")
    assert checked.exit_code == 0, checked.output


def test_a_service_that_does_not_answer_ends_no_followed_training(tmp_path: Path) -> None:
    said: list[str] = []

    def diagnose(_: object) -> None:
        raise ServiceError("nobody answers", hint="")

    with opened(tmp_path) as memory:
        first_round(memory, [("drops a carry", "add", 2)])
        steering = Steering(tmp_path / "next.json", None, diagnose, lambda _: None, said.append)
        steering.serve(memory)
        before = (tmp_path / "next.json").read_bytes()
        memory.open_round(2)
        assert not steering.play(memory)
        assert (tmp_path / "next.json").read_bytes() == before
    assert said[-1] == "round 2 waits for the next step: nobody answers"
    found = json.loads(before)
    assert [cause["description"] for cause in found["causes"]] == ["drops a carry"]
    assert {draw["row"] for draw in found["draws"]} == {None}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--steer", "next.json"], "--steer needs a training that is still running"),
        (["--follow", "--dataset", "rows.jsonl"], "--dataset is only used by --steer"),
        (["--follow", "--steer", "next.json"], "names rules:arithmetic, which cannot"),
        (
            ["--follow", "--steer", "next.json", "--dataset", "rows.jsonl", *LOCAL],
            "there is no file rows.jsonl",
        ),
        (["--follow", "--steer", "/proc/next.json", *LOCAL], "cannot be written"),
    ],
)
def test_what_cannot_be_served_is_refused(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"DIAGEVO_HOME": str(tmp_path)}
    found = invoke("ingest", "verl", DATA / "verl" / "rollouts", "--run", "v", *options, env=env)
    assert found.exit_code == 2
    assert said in found.stderr
    assert not (tmp_path / "next.json").exists()


def test_who_reads_before_anybody_serves_is_told_what_to_start(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="start first: diagevo ingest"):
        NextDraws(tmp_path / "next.json")


def test_the_reader_needs_nothing_but_the_standard_library() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import diagevo.integrations.next_draws"
    done = subprocess.run([sys.executable, "-ISc", program, ROOT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def steered(folder: Path) -> None:
    """What a training leaves that followed the draws: rows with an even number fail, the others pass."""
    by_round: dict[int, list[int]] = {}
    for line in (folder / "drawn.jsonl").read_text(encoding="utf-8").splitlines():
        by_round.setdefault((drawn := json.loads(line))["round"], []).extend(drawn["rows"])
    assert list(by_round) == [1, 2, 3, 4]
    assert {row % 2 for row in by_round[1]} == {0, 1}
    later = [row % 2 == 0 for number, rows in by_round.items() if number > 1 for row in rows]
    assert sum(later) / len(later) > 0.75
    with diagevo.open(f"sqlite:///{folder / 'diagevo.db'}", run="v") as memory:
        assert memory.state.round == 3
        assert [memory.schedule(number).epsilon for number in (1, 2)] == [1, Fraction(1, 3)]


def trained(folder: Path, python: Path | str, program: str, *arguments: object, path: str) -> None:
    command = [python, "-m", f"tests.integrations.{program}", folder, *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{path}", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_verls_own_data_set_follows_the_draws(tmp_path: Path) -> None:
    if not (VERL / "omegaconf").is_dir():
        pytest.skip("verl is not installed: make steered")
    (tmp_path / "rollouts").mkdir()
    with followed(tmp_path, "verl", "rollouts", QUESTIONS):
        trained(tmp_path, sys.executable, "verl_training", QUESTIONS, 8, 2, path=str(VERL))
    steered(tmp_path)


def test_prime_rls_own_task_source_follows_the_draws(tmp_path: Path) -> None:
    if not (PRIME / "bin" / "python").exists() or not (checkouts := os.environ.get("PRIME_RL")):
        pytest.skip("prime-rl is in no registry: make steered PRIME_RL=CHECKOUT VERIFIERS=CHECKOUT")
    rows = [
        {"prompt": row["prompt"][0]["content"], "answer": row["answer"]}
        for row in json.loads(QUESTIONS.read_text(encoding="utf-8"))
    ]
    dataset = tmp_path / "train.jsonl"
    dataset.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (tmp_path / "rollouts").mkdir()
    with followed(tmp_path, "prime-rl", ".", dataset):
        others = checkouts, os.environ["VERIFIERS"]
        trained(tmp_path, PRIME / "bin" / "python", "prime_rl_training", dataset, 8, 2, *others, path="")
    steered(tmp_path)
