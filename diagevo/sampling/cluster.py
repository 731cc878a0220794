"""The Ray cluster of a run: connecting, inspecting, and reserving placements."""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from diagevo.config.resources import Bundle, ClusterNode, describe_bundles, describe_nodes
from diagevo.errors import ServiceError, extra
from diagevo.progress import StopFlag

_REACH = 10.0  # seconds for a cluster to answer
_LOOK = 5.0  # seconds between two checks of the nodes, while there is no room
_HINT = "start one (ray start --head, ray up), or name it: RAY_ADDRESS=HOST:6379"


def connected() -> Any:
    """The module ray, connected to the cluster of RAY_ADDRESS, or else to the one of this machine.

    Raises MissingDependencyError without the extra, ServiceError if no cluster answers.
    """
    with extra("ray", "hardware.cluster: ray"):
        import ray
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS") or "auto"
        in_main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM)
        try:
            _reach(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            where = "on this machine" if address == "auto" else f"at {address}"
            raise ServiceError(f"no Ray cluster answers {where}: {error}", hint=_HINT) from error
        finally:
            if in_main:  # Ray's own handler would end a run at once instead of letting it stop safely.
                signal.signal(signal.SIGTERM, handler)
    return ray


def _reach(address: str) -> None:
    """Ray retries for ten minutes if nothing listens."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()


def nodes_of(ray: Any) -> list[ClusterNode]:
    """The current nodes with available resources."""
    found = [
        ClusterNode(
            node["NodeManagerAddress"],
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("GPU", 0)),
            # Ray reserves part of a machine's or container's memory for its own objects.
            int(sum(node["Resources"].get(name, 0) for name in ("memory", "object_store_memory"))),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted((node for node in found if node.cpus or node.gpus), key=lambda node: node.address)


class Places:
    """A placement group, and the actors in it. `close` releases all of them."""

    def __init__(
        self, ray: Any, bundles: Sequence[Bundle], *, name: str, timeout: float, stop: StopFlag
    ) -> None:
        """Wait at most `timeout` seconds for room, on as few nodes as have it. Raises ServiceError if
        there is none."""
        self._ray, self._bundles = ray, bundles
        self._group = ray.util.placement_group(list(bundles), strategy="PACK", name=name)
        deadline = time.monotonic() + timeout
        while not self._group.wait(min(_LOOK, timeout)):
            if stop.overdue:
                self.close()
                stop.check()
            if time.monotonic() >= deadline:
                self.close()
                raise ServiceError(
                    f"{name}: the cluster has no room for {describe_bundles(bundles)} after {timeout:g} s;"
                    f" its nodes: {describe_nodes(nodes_of(ray)) or 'none'}",
                    hint="add nodes or stop what else runs there, then: diagevo train --resume",
                )

    def actor(self, kind: type, place: int, *arguments: object) -> Any:
        """An actor of class `kind` in one of the placements."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundle = self._bundles[place]
        there = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place)
        made = self._ray.remote(kind).options(
            num_cpus=bundle.get("CPU", 0), num_gpus=bundle.get("GPU", 0), scheduling_strategy=there
        )
        return made.remote(*arguments)

    def close(self) -> None:
        """Release the placements; their actors end."""
        self._ray.util.remove_placement_group(self._group)
