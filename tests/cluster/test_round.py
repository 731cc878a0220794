"""The round of one process on a Ray cluster of two nodes, whole and with a node lost in each stage."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from diagevo.errors import StoppedSafely
from diagevo.loop.run import Until
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import open_history
from diagevo.progress import StageProgress
from diagevo.training.ranks import RayRanks
from tests.cluster import forked_rank
from tests.cluster.nodes import Nodes, cluster
from tests.forked import server_address
from tests.run.small import ONE_STEP, Watcher, play, small_config
from tests.run.test_processes import told
from tests.run.test_round import of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CONFIG = small_config(
    **ONE_STEP,
    hardware={"cluster": "ray", "processes": 2, "device": "cpu", "threads": 1, "rank_timeout": 120},
    validation={"questions": None},
)


def test_ranks_of_two_nodes_train_the_challenger_that_one_process_trains(
    one_step: Path, tmp_path: Path
) -> None:
    """Started as users start them. Each process takes eight seconds of CPU: the whole round is below."""
    with cluster(2), pytest.raises(StoppedSafely):
        play(tmp_path, CONFIG, until=Until(1, "challenger"))
    mine, other = (
        load_file(home / "a" / "rounds" / "001" / "challenger" / "model.safetensors")
        for home in (tmp_path, one_step)
    )
    assert mine.keys() == other.keys()
    for name, weights in mine.items():  # the step moved each by 4e-4
        torch.testing.assert_close(weights, other[name], rtol=0, atol=1e-5, msg=name)


class Losing(Watcher):
    """Loses a node in each stage, with work of that stage on it, and adds another in its place."""

    def __init__(self, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._nodes = nodes
        self._left = {"challenger", "candidates", "votes", "solver"}
        self._rank = 0
        started = RayRanks.start

        def start(ranks: RayRanks, *arguments: Any) -> Any:
            found = started(ranks, *arguments)
            self._rank = _pid(ranks._ray, ranks._hosts[1])
            return found

        monkeypatch.setattr(RayRanks, "start", start)

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        """In training rank 0 waits meanwhile: the step is observed, and not yet in a checkpoint. Of answers
        some have come, and others are under way."""
        if stage in self._left and progress.done:
            self._left.remove(stage)
            self._nodes.lose(self._rank)
            self._nodes.add()


def _pid(ray: Any, actor: Any) -> int:
    return ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))


def test_it_is_the_same_round_when_a_node_is_lost_in_each_stage(
    one_step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The test above starts ranks as users do.
    program = [sys.executable, str(Path(forked_rank.__file__)), server_address()]
    monkeypatch.setattr("diagevo.training.ranks.worker_command", lambda spec: [*program, str(spec)])
    with cluster(2) as nodes:
        watcher = play(tmp_path, CONFIG, rounds=1, watcher=Losing(nodes, monkeypatch))
    assert [(stage, attempt) for _, stage, attempt in watcher.stages] == [
        *[("challenger", 1), ("challenger", 2), ("candidates", 1), ("votes", 1)],
        *[("solver", 1), ("solver", 2), ("diagnosis", 1)],
    ]
    history = open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a", root=tmp_path)
    abandoned = of(history, events.StageAbandoned, 1)
    history.close()
    assert [event.stage for event in abandoned] == ["challenger", "solver"]
    # A rank whose node is gone may yet have saved the step before it ended with it.
    assert all(event.after_step in (0, 1) for event in abandoned)
    assert all("training rank 1 of 2, on node" in (event.reason or "") for event in abandoned)
    lost = [line for line in watcher.lines if "is lost with its node" in line]
    assert len(lost) == 4, watcher.lines
    assert told(tmp_path) == told(one_step)
