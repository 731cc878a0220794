"""A round on two machines, `diagevo train` and `diagevo join`, beside the same round on one."""

from pathlib import Path

import pytest

from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import prepare
from tests.run.program import first, joining, played
from tests.run.small import play, small_config
from tests.run.test_processes import counts


@pytest.mark.slow
def test_two_machines_play_the_round_that_one_plays(tmp_path: Path) -> None:
    # One step a phase: later steps sum the same gradients in another order, and a sample may then differ.
    change = {"challenger_grpo": {"max_steps": 1}, "solver_grpo": {"max_steps": 1}}
    one, two = tmp_path / "one", tmp_path / "two"
    two.mkdir()
    play(one, small_config(**change), rounds=1)

    database = Database(str(two / "diagevo.db"))
    prepare(database, create=True)
    database.close()
    hardware = {"machines": 2, "address": "127.0.0.1", "threads": 1, "rank_timeout": 120}
    with joining(two, 1) as other:
        done = played(two, first(two, **change, hardware=hardware))
        _, said = other.communicate(timeout=60)
    assert done.code == 0, done.stderr[-3000:]
    assert "on machine 1 run: diagevo join --run a --machine K" in done.messages()
    assert other.returncode == 0
    # A machine that comes when the run is under way already waits for nothing.
    assert [line for line in said.splitlines() if line != "waiting for the run to be played"] == [
        "joining rounds/001/challenger-logs",
        "joining rounds/001/solver-logs",
        "run a has ended",
    ]
    assert counts(two) == counts(one)
