"""`diagevo train`, killed with SIGKILL in every stage and resumed, against a run that nobody killed."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from diagevo.memory import events
from diagevo.memory.history import History, open_history
from diagevo.memory.verify import verify
from tests.run.small import SMALL, play, small_config
from tests.run.test_round import of, placements

KILLS = [
    ("challenger", "stage_progress"),
    ("candidates", "stage_started"),
    ("votes", "stage_started"),
    ("solver", "stage_progress"),
    ("diagnosis", "stage_progress"),
]
"""When the process dies in each stage of round 1: in the midst of it, where the stage tells of progress."""


def command(home: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    program = [
        sys.executable,
        "-c",
        "from diagevo.cli.main import app; app()",
        "train",
        "--run",
        "a",
        *arguments,
    ]
    return [*program, "--display", "json"], {**os.environ, "DIAGEVO_HOME": str(home), "HF_HUB_OFFLINE": "1"}


def run_until(home: Path, stage: str, event: str, *arguments: str) -> list[dict[str, Any]]:
    """Start a real process and SIGKILL it at the first such line; the lines it had printed."""
    program, environment = command(home, *arguments)
    lines: list[dict[str, Any]] = []
    with (
        open(home / "stderr.txt", "ab") as errors,
        subprocess.Popen(
            program, env=environment, stdout=subprocess.PIPE, stderr=errors, cwd=home
        ) as process,
    ):
        assert process.stdout is not None
        for text in process.stdout:
            lines.append(json.loads(text))
            if lines[-1]["event"] == event and lines[-1]["stage"] == stage:
                process.send_signal(signal.SIGKILL)
                break
        process.wait(timeout=60)
    assert process.returncode == -signal.SIGKILL, (home / "stderr.txt").read_text()[-3000:]
    return lines


@pytest.mark.slow
def test_killed_in_every_stage_the_run_ends_where_an_unbroken_one_does(tmp_path: Path) -> None:
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"
    unbroken.mkdir()
    killed.mkdir()
    play(unbroken, small_config(), rounds=1)
    (killed / "small.yaml").write_text(json.dumps(SMALL), encoding="utf-8")

    arguments = ["-c", str(killed / "small.yaml"), "--rounds", "1"]
    for stage, event in KILLS:
        told = run_until(killed, stage, event, *arguments)
        arguments = ["--resume", "--rounds", "1"]
        started = [line["stage"] for line in told if line["event"] == "stage_started"]
        assert started[-1] == stage, "what was complete before the kill is not played again"
    program, environment = command(killed, "--resume", "--rounds", "1")
    done = subprocess.run(program, env=environment, capture_output=True, text=True, cwd=killed, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]

    a = open_history(f"sqlite:///{unbroken / 'diagevo.db'}", "a", root=unbroken)
    b = open_history(f"sqlite:///{killed / 'diagevo.db'}", "a", root=killed)
    try:
        assert b.commit(1).event.state_hash == a.commit(1).event.state_hash
        assert b.commit(1).event.failures == a.commit(1).event.failures
        assert _valid_failures(b) == _valid_failures(a)
        placed = [event.failure_id for event in placements(b)]
        assert max(Counter(placed).values()) == 1, "no failure is counted twice"
        attempts = {(event.stage, event.attempt) for event in of(b, events.StageStarted)}
        assert attempts == {(stage, attempt) for stage, _ in KILLS for attempt in (1, 2)}
        for history in (a, b):
            assert history.root is not None
            report = verify(history.log, history.run_id, history.root / "a", deep=True)
            assert report.ok, report.faults
    finally:
        a.close()
        b.close()
    weights = "a/rounds/001/solver/model.safetensors"
    assert (killed / weights).read_bytes() == (unbroken / weights).read_bytes()


def _valid_failures(history: History) -> dict[str, str]:
    """Observed failures that no abandonment voided, with their trajectory: read from the events by hand."""
    after = {(event.stage, event.attempt): event.after_step for event in of(history, events.StageAbandoned)}
    observed = of(history, events.FailureObserved)
    return {f.failure_id: f.trajectory for f in observed if f.step <= after.get((f.stage, f.attempt), f.step)}
