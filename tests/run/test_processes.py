"""A round whose phases run in two real processes over gloo, beside the same round in one."""

from pathlib import Path

import pytest
from msgspec import structs

from diagevo.memory.events import catalogue as events
from diagevo.memory.events.records import payload_of
from diagevo.memory.history import open_history
from tests.run.program import RESUMED, WITH_FORKED_RANKS, first, played
from tests.run.small import ONE_STEP

HOW_IT_WAS_PLAYED = {  # machines and measurements, and not the round
    *("RunConfigured", "StageStarted", "StageCompleted", "StageAbandoned"),
    *("StepTrained", "PhaseMeasured", "CheckpointEvaluated"),
}


WHAT_ROUNDS_TELL = {"RoundOpened", "CandidateScored", "FailureObserved", "CauseCreated", "RoundCommitted"}


def told(home: Path) -> set[tuple[str, str]]:
    """Every event that the round is made of, its commit with the state's hash among them, whole but for its
    attempt: what an attempt observed that was given up is observed again, and is the same.
    """
    history = open_history(f"sqlite:///{home / 'diagevo.db'}", "a", root=home)
    try:
        return {
            (recorded.type, payload_of(_of_any_attempt(recorded.event)))
            for recorded in history.log.read(history.run_id, rounds=(1, 1))
            if recorded.type not in HOW_IT_WAS_PLAYED
        }
    finally:
        history.close()


def _of_any_attempt(event: events.Event) -> events.Event:
    return structs.replace(event, attempt=1) if "attempt" in event.__struct_fields__ else event


@pytest.mark.slow
def test_two_processes_one_of_which_hung_and_was_killed_play_the_round_that_one_plays(
    one_step: Path, tmp_path: Path
) -> None:
    started = first(tmp_path, **ONE_STEP, hardware={"processes": 2, "threads": 1, "rank_timeout": 15})
    hung = played(tmp_path, started, main=WITH_FORKED_RANKS, BEFALLS="challenger-work:SIGSTOP")
    assert hung.code == 6, hung.stderr[-3000:]
    assert "Training rank 1 of 2 did not answer the others in time: rank 1 was" in hung.error()["message"]
    assert "a/logs/rank-1.log" in hung.error()["message"]
    assert "diagevo train --resume" in hung.error()["hint"]

    patient = [*RESUMED, "--set", "hardware.rank_timeout=600"]
    killed = played(tmp_path, patient, main=WITH_FORKED_RANKS, BEFALLS="solver-work:SIGKILL")
    assert killed.code == 6, killed.stderr[-3000:]
    assert "Training rank 1 of 2 was ended by signal 9 (SIGKILL) while" in killed.error()["message"]
    assert killed.stages() == ["challenger", "candidates", "votes", "solver"]

    done = played(tmp_path, patient)  # its ranks are started, as a user's are
    assert done.code == 0, done.stderr[-3000:]
    assert done.stages() == ["solver", "diagnosis"]
    assert "round 1 solver: the training processes write to" in done.messages()
    assert told(tmp_path) == told(one_step)
    assert {kind for kind, _ in told(one_step)} >= WHAT_ROUNDS_TELL
    logs = tmp_path / "a" / "logs"
    assert sorted(p.name for p in logs.iterdir()) == ["rank-0.log", "rank-1.log"]
