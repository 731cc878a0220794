"""`diagevo train`, killed with SIGKILL in every stage or stopped with SIGTERM, against a run left alone."""

import re
import signal
from pathlib import Path

import pytest

from diagevo.memory.events import catalogue as events
from diagevo.progress import VALIDATION
from tests.run.program import RESUMED, Moment, assert_same_end, first, killed, played, terminated
from tests.run.test_round import of

KILLS = [
    ("challenger", "stage_progress"),
    ("candidates", "stage_started"),
    ("votes", "stage_started"),
    ("solver", "stage_progress"),
    ("diagnosis", "stage_progress"),
]
"""When the process dies in each stage of round 1: in the midst of it, where the stage tells of progress."""


@pytest.mark.slow
def test_killed_in_every_stage_the_run_ends_where_an_unbroken_one_does(
    unbroken: Path, tmp_path: Path
) -> None:
    arguments = first(tmp_path)
    for stage, event in KILLS:
        told = played(tmp_path, arguments, Moment(stage, event, killed))
        assert told.code == -signal.SIGKILL, told.stderr[-3000:]
        assert told.stages()[-1] == stage, "what was complete before the kill is not played again"
        arguments = RESUMED
    done = played(tmp_path, RESUMED)
    assert done.code == 0, done.stderr[-3000:]
    history = assert_same_end(tmp_path, unbroken)
    attempts = {(event.stage, event.attempt) for event in of(history, events.StageStarted)}
    history.close()
    assert attempts == {(stage, attempt) for stage, _ in KILLS for attempt in (1, 2)}


@pytest.mark.slow
def test_sigterm_stops_with_75_once_the_step_is_saved_and_no_step_is_played_twice(
    unbroken: Path, tmp_path: Path
) -> None:
    stopped = played(tmp_path, first(tmp_path), Moment("solver", "stage_progress", terminated))
    assert stopped.code == 75, stopped.stderr[-3000:]
    assert "SIGTERM: stopping at the next safe point" in stopped.stderr
    last = stopped.steps("solver")[-1]
    assert last < 3, "it was stopped in the midst of the solver's three steps"
    assert stopped.error() == {
        "event": "error",
        "kind": "stopped",
        "message": f"stopped after step {last} of the solver's training, as asked",
        "hint": "continue with: diagevo train --resume",
    }
    done = played(tmp_path, RESUMED)
    assert done.code == 0, done.stderr[-3000:]
    assert f"round 1: solver was interrupted and resumes after step {last}" in done.messages()
    assert stopped.steps("solver") + done.steps("solver") == [1, 2, 3]
    assert re.fullmatch(
        r"run a is at round 1, after \d:\d\d in all; see: diagevo memory show --run a\n", done.stderr
    )
    again = played(tmp_path, RESUMED)
    [before] = [line["seconds"] for line in again.lines if line["event"] == "resumed"]
    assert (list(before["0"]), list(before["1"])[-1]) == ([VALIDATION], VALIDATION)
    assert all(took > 0 for stages in before.values() for took in stages.values())
    assert again.stderr == (
        "run a has 1 round already; to continue: diagevo train --run a --resume --rounds 2\n"
    )
    assert_same_end(tmp_path, unbroken).close()
