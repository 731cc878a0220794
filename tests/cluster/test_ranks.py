"""Ranks that are placed on a cluster."""

from pathlib import Path

import pytest

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.errors import ServiceError
from diagevo.progress import StopFlag
from diagevo.training.launch_spec import LaunchSpec
from diagevo.training.ray_ranks import RayRanks
from tests.cluster.nodes import cluster
from tests.training import phase

pytestmark = pytest.mark.slow


def test_a_rank_that_cannot_be_started_says_where_and_why(tmp_path: Path) -> None:
    """As where a node does not see the disk of the runs, or may not write to it."""
    logs = tmp_path / "solver-logs"
    logs.write_text("no folder")
    alone = HardwareConfig(cluster="ray", device="cpu", rank_timeout=60)
    with cluster(1):
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
