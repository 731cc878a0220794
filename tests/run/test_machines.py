"""A round on two machines, `diagevo train` and `diagevo join`, beside the same round on one."""

from pathlib import Path

import pytest

from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import prepare
from tests.run.program import WITH_FORKED_RANKS, first, joining, played
from tests.run.small import ONE_STEP
from tests.run.test_processes import counts


@pytest.mark.slow
def test_two_machines_play_the_round_that_one_plays(one_step: Path, tmp_path: Path) -> None:
    database = Database(str(tmp_path / "diagevo.db"))
    prepare(database, create=True)
    database.close()
    hardware = {"machines": 2, "address": "127.0.0.1", "threads": 1, "rank_timeout": 120}
    with joining(tmp_path, 1) as other:
        arguments = first(tmp_path, **ONE_STEP, hardware=hardware)
        done = played(tmp_path, arguments, main=WITH_FORKED_RANKS)
        assert other.wait(timeout=60) == 0
        said = other.stderr.read()
    assert done.code == 0, done.stderr[-3000:]
    assert "on machine 1 run: diagevo join --run a --machine K" in done.messages()
    # A machine that comes when the run is under way already waits for nothing.
    assert [line for line in said.splitlines() if line != "waiting for the run to be played"] == [
        "joining rounds/001/challenger-logs",
        "joining rounds/001/solver-logs",
        "run a has ended",
    ]
    assert counts(tmp_path) == counts(one_step)
