"""A round whose phases run in two real processes over gloo, beside the same round in one."""

import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest
from msgspec import structs

from diagevo.memory.events import catalogue as events
from diagevo.memory.events.records import payload_of
from diagevo.memory.history import open_history
from tests.forked import Forked
from tests.run.program import RESUMED, WITH_FORKED_RANKS, Moment, first, played
from tests.run.small import ONE_STEP
from tests.training.forked_ranks import MET

HOW_IT_WAS_PLAYED = {  # machines and measurements, and not the round
    *("RunConfigured", "StageStarted", "StageCompleted", "StageAbandoned"),
    *("PhaseMeasured", "CheckpointEvaluated"),
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


def rank_one(home: Path, stage: str, number: int) -> Moment:
    """Rank 1, which is forked, gets this signal as soon as it plays the stage with the other."""
    log = home / "a" / "logs" / "rank-1.log"

    def begin(process: Forked) -> None:
        before = said(log).count(MET)
        threading.Thread(target=send, args=[process, before]).start()

    def send(process: Forked, before: int) -> None:
        while process.poll() is None:
            if (text := said(log)).count(MET) > before:
                os.kill(int(re.findall(r"process (\d+)\n", text)[-1]), number)
                return
            time.sleep(0.05)

    return Moment(stage, "stage_started", begin)


def said(log: Path) -> str:
    return log.read_text() if log.exists() else ""


@pytest.mark.slow
def test_two_processes_one_of_which_hung_and_was_killed_play_the_round_that_one_plays(
    one_step: Path, tmp_path: Path
) -> None:
    started = first(tmp_path, **ONE_STEP, hardware={"processes": 2, "threads": 1, "rank_timeout": 15})
    stopped = rank_one(tmp_path, "challenger", signal.SIGSTOP)
    hung = played(tmp_path, started, stopped, main=WITH_FORKED_RANKS)
    assert hung.code == 6, hung.stderr[-3000:]
    assert "Training rank 1 of 2 did not answer the others in time: rank 1 was" in hung.error()["message"]
    assert "a/logs/rank-1.log" in hung.error()["message"]
    assert "diagevo train --resume" in hung.error()["hint"]

    ended = rank_one(tmp_path, "solver", signal.SIGKILL)
    killed = played(tmp_path, RESUMED, ended, main=WITH_FORKED_RANKS)
    assert killed.code == 6, killed.stderr[-3000:]
    assert "Training rank 1 of 2 was ended by signal 9 (SIGKILL) while" in killed.error()["message"]
    assert killed.stages() == ["challenger", "candidates", "votes", "solver"]

    done = played(tmp_path, RESUMED)  # its ranks are started, as a user's are
    assert done.code == 0, done.stderr[-3000:]
    assert done.stages() == ["solver", "diagnosis"]
    assert "round 1 solver: the training processes write to" in done.messages()
    assert told(tmp_path) == told(one_step)
    assert {kind for kind, _ in told(one_step)} >= WHAT_ROUNDS_TELL
    logs = tmp_path / "a" / "logs"
    assert sorted(p.name for p in logs.iterdir()) == ["rank-0.log", "rank-1.log"]
