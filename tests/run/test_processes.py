"""A round whose phases run in two real processes over gloo, beside the same round in one."""

from pathlib import Path

import pytest

from diagevo.memory import events
from diagevo.memory.history import open_history
from tests.run.small import play, small_config
from tests.run.test_round import of


def counts(home: Path) -> dict[str, object]:
    history = open_history(f"sqlite:///{home / 'diagevo.db'}", "a", root=home)
    try:
        return {
            "verdicts": [c.verdict for c in of(history, events.CandidateScored, 1)],
            "failures": {f.failure_id: f.step for f in of(history, events.FailureObserved, 1)},
            "memory": history.commit(1).event.state_hash,
        }
    finally:
        history.close()


@pytest.mark.slow
def test_two_processes_play_the_round_that_one_plays(tmp_path: Path) -> None:
    # One step a phase: later steps sum the same gradients in another order, and a sample may then differ.
    change = {"challenger_grpo": {"max_steps": 1}, "solver_grpo": {"max_steps": 1}}
    one, two = tmp_path / "one", tmp_path / "two"
    play(one, small_config(**change), rounds=1)
    play(two, small_config(**change, hardware={"processes": 2, "threads": 1, "rank_timeout": 120}), rounds=1)
    assert counts(two) == counts(one)
    assert counts(one)["failures"], "the small model fails somewhere"
    logs = two / "a" / "rounds" / "001" / "solver-logs"
    assert sorted(p.name for p in logs.glob("rank-*.log")) == ["rank-0.log", "rank-1.log"]
