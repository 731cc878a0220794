"""What a stage leaves in the log beside its work, and what the challenger wrote beside the log."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from diagevo.errors import NodeLostError, OutOfMemoryError, StoppedSafely
from diagevo.loop.players import load_written, save_written
from diagevo.loop.stages import Outcome, Stages, StepRecorder
from diagevo.memory.events import GroupRewards, StageAbandoned, StepTrained
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.interface import Ask, Written
from diagevo.progress import Observer, StopFlag
from diagevo.training.phase import Rollout
from tests.memory import play


def never_short(stage: str, error: OutOfMemoryError) -> str:
    raise error


def test_an_interrupted_attempt_says_how_long_it_ran(tmp_path: Path) -> None:
    """Up to the last file among its checkpoints, written 90 s after its start."""
    work = tmp_path / "work"
    work.mkdir()
    with play.opened(tmp_path) as memory:
        memory.open_round(1)
        memory.start_stage("solver")
        written = time.time() + 90
        (work / "trainer.json").write_text("{}")
        os.utime(work / "trainer.json", (written, written))
        stages = Stages(memory, 1, tmp_path, Observer(), StopFlag(), shrink=never_short)
        stages.play("solver", Outcome, checkpoints=work)
        [recorded] = memory.log.read(memory.run_id, types=["StageAbandoned"])
    assert isinstance(recorded.event, StageAbandoned)
    assert recorded.event.seconds is not None
    assert 90 <= recorded.event.seconds < 120


@pytest.mark.parametrize(("restarts", "attempts"), [(0, 1), (1, 2), (2, 3)])
def test_a_stage_whose_node_is_lost_goes_on_as_often_as_it_may_and_the_log_says_why(
    restarts: int, attempts: int, tmp_path: Path
) -> None:
    tried = 0

    def work() -> Outcome:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise NodeLostError(f"training rank 1 of 2, on node n{tried}, is lost with its node")
        return Outcome()

    with play.opened(tmp_path) as memory:
        memory.open_round(1)
        stages = Stages(memory, 1, tmp_path, Observer(), StopFlag(), restarts=restarts, shrink=never_short)
        if restarts < 2:
            with pytest.raises(NodeLostError, match=f"on node n{attempts}"):
                stages.play("solver", work, checkpoints=tmp_path)
        else:
            stages.play("solver", work, checkpoints=tmp_path)
        status = memory.stage("solver")
        told = [r.event for r in memory.log.read(memory.run_id, types=["StageAbandoned"])]
    assert (tried, status.attempt) == (attempts, attempts)
    assert status.status == ("completed" if restarts == 2 else "running")
    assert [(e.attempt, e.reason) for e in told if isinstance(e, StageAbandoned)] == [
        (n, f"training rank 1 of 2, on node n{n}, is lost with its node") for n in range(1, attempts)
    ]


def test_a_stage_to_stop_after_stops_again_where_it_is_done_already(tmp_path: Path) -> None:
    def played() -> list[str]:
        stop, found = StopFlag(), []
        stages = Stages(memory, 1, tmp_path, Observer(), stop, "candidates", shrink=never_short)
        for name in ("challenger", "candidates", "votes"):
            try:
                stages.play(name, Outcome)
            except StoppedSafely:
                break
            found.append(name)
        return found

    with play.opened(tmp_path) as memory:
        memory.open_round(1)
        assert played() == ["challenger", "candidates"]
        assert played() == ["challenger", "candidates"]
        assert memory.stage("votes").status == "not_started"


def test_a_stage_to_stop_after_that_is_not_played_stops_too(tmp_path: Path) -> None:
    with play.opened(tmp_path) as memory:
        memory.open_round(1)
        stages = Stages(memory, 1, tmp_path, Observer(), StopFlag(), "challenger", shrink=never_short)
        stages.passed("challenger")
        with pytest.raises(StoppedSafely, match="before the stage candidates of round 1"):
            stages.play("candidates", Outcome)


@pytest.mark.parametrize("ends", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\r\n", "\n"])
def test_whatever_may_end_a_line_comes_back_as_it_was_written(tmp_path: Path, ends: str) -> None:
    method: Any = SimpleNamespace(read=lambda ask, completion: Written(ask.draw, completion, completion))
    written = [Written(Draw(i, "free"), text, text) for i, text in enumerate([f"one{ends}two", "three", ""])]
    save_written(tmp_path / "written.jsonl", written)
    asks = [Ask(w.draw, []) for w in written]
    assert load_written(tmp_path / "written.jsonl", asks, method) == written
    save_written(tmp_path / "written.jsonl", [])
    assert load_written(tmp_path / "written.jsonl", [], method) == []


def test_a_stages_reward_is_weighted_by_completions_and_the_same_where_it_was_interrupted(
    tmp_path: Path,
) -> None:
    """Of 256 completions 32 are right, and of a last batch of 34 none: (32 − 224 − 34) / 290 = −.7793, where
    the mean of the two means, −.75 and −1, is −.875."""

    def trained(steps: StepRecorder, step: int, right: int, of: int) -> None:
        rollouts = [Rollout(f"q{n // 2}", n % 2, step, "", False) for n in range(of)]
        mean = steps.rewarded(rollouts, [1.0] * right + [-1.0] * (of - right))
        assert mean == pytest.approx((2 * right - of) / of)
        steps.updated(step, {"loss": 0.12345678, "kl": None, "entropy": float("nan"), "reward": 9.0})

    with play.opened(tmp_path) as memory:
        memory.open_round(1)
        memory.start_stage("solver")
        killed = StepRecorder(memory, 1, "solver")
        trained(killed, 1, 32, 256)
        trained(killed, 2, 34, 34)  # it was not saved, and is played again
        memory.abandon_stage("solver", after_step=1)
        memory.start_stage("solver")
        resumed = StepRecorder(memory, 1, "solver")
        assert resumed.reward(3) is None, "not all steps are known"
        trained(resumed, 2, 0, 34)
        assert resumed.reward(2) == -226 / 290  # 32 of 256 right, and none of 34
        recorded = [r.event for r in memory.log.read(memory.run_id, types=["StepTrained"])]
    assert [(e.attempt, e.step) for e in recorded if isinstance(e, StepTrained)] == [(1, 1), (1, 2), (2, 2)]
    first = recorded[0]
    assert isinstance(first, StepTrained)
    assert (first.loss, first.kl, first.entropy, first.grad_norm) == (0.123457, None, None, None)
    assert first.groups[0] == GroupRewards(prompt="q0", rewards=[1.0, 1.0])
    assert len(first.groups) == 128
