"""Ranks that are placed on a cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.errors import ServiceError
from diagevo.progress import StopFlag
from diagevo.sampling.cluster import Places, connected
from diagevo.training.ranks import LaunchSpec, RayRanks
from tests.cluster.nodes import cluster
from tests.training import phase

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_node")]


@pytest.fixture(scope="module")
def one_node() -> Iterator[None]:
    with cluster(1):
        yield


def test_a_rank_that_cannot_be_started_says_where_and_why(tmp_path: Path) -> None:
    """As where a node does not see the disk of the runs, or may not write to it."""
    logs = tmp_path / "solver-logs"
    logs.write_text("no folder")
    alone = HardwareConfig(cluster="ray", device="cpu", rank_timeout=60)
    ranks = RayRanks(alone, StopFlag())
    spec = LaunchSpec(
        model=tmp_path,
        hardware=alone,
        sampling=phase.SAMPLING,
        training=TrainingConfig(),
        address=(ranks.listen_at, 4001),
        rendezvous=ranks.rendezvous,
        key="00",
    )
    with pytest.raises(ServiceError) as caught:
        ranks.start(logs / "launch.json", spec)
    ranks.close()
    assert caught.value.message.startswith("training rank 0 of 1, on node ")
    assert f"could not be started: [Errno 17] File exists: '{logs}'" in caught.value.message
    assert "docs/howto/cluster.md" in (caught.value.hint or "")


def test_ranks_for_which_there_is_no_room_name_the_nodes() -> None:
    with pytest.raises(ServiceError) as caught:
        Places(connected(), [{"CPU": 8}] * 2, name="big, ranks", timeout=1, stop=StopFlag())
    assert "big, ranks: the cluster has no room for 2 × 8 CPU after 1 s; its nodes: " in caught.value.message
    assert "(1 CPU)" in caught.value.message
