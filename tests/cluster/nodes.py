"""A Ray cluster of simulated nodes: a head without room of its own, and nodes that can be lost."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
_STORE = 80 * 2**20


class Nodes:
    """The cluster, as tests change it."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args=_of(0))
        self.address = str(self._cluster.address)
        self._there: dict[int, Any] = {}

    def add(self, cpus: int = 1, gpus: int = 0) -> None:
        """`gpus`: that Ray counts, and nobody has."""
        node = self._cluster.add_node(**_of(cpus, gpus))
        [raylet] = node.all_processes["raylet"]
        self._there[raylet.process.pid] = node

    def lose(self, process: int) -> None:
        """All processes of the node that runs this one get SIGKILL."""
        while process not in self._there:
            process = int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
            assert process > 1, "no node runs it"
        self._cluster.remove_node(self._there.pop(process), allow_graceful=False)

    def close(self) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()


def _of(cpus: int, gpus: int = 0) -> dict[str, Any]:
    return {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": _STORE, "include_dashboard": False}


@contextmanager
def cluster(nodes: int = 2, *, gpus: int = 0) -> Iterator[Nodes]:
    made = Nodes()
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = made.address
    try:
        for _ in range(nodes):
            made.add(gpus=gpus)
        yield made
    finally:
        made.close()
        del os.environ["RAY_ADDRESS"]
        if before is not None:
            os.environ["RAY_ADDRESS"] = before
