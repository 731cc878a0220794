"""What of a Ray cluster a stage takes: places for training ranks, and for engines that sample. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from diagevo.config.models import HardwareConfig
from diagevo.config.serving import engine_gpus

Bundle = dict[str, int]
"""What one process takes, by Ray's names: GPU, CPU."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One machine of a cluster."""

    address: str
    cpus: int
    gpus: int


def on_gpus(hardware: HardwareConfig, nodes: Sequence[ClusterNode]) -> bool:
    """Whether a run's models are on GPUs; `auto`: where the cluster has any."""
    return hardware.device == "cuda" or (hardware.device == "auto" and any(node.gpus for node in nodes))


def rank_bundles(hardware: HardwareConfig, nodes: Sequence[ClusterNode]) -> list[Bundle]:
    """A place for each training rank: a GPU, or its threads of a CPU."""
    each = {"GPU": 1} if on_gpus(hardware, nodes) else {"CPU": hardware.threads or 1}
    return [each] * hardware.processes


def engine_bundles(
    hardware: HardwareConfig, nodes: Sequence[ClusterNode], *, beside_training: bool
) -> list[Bundle]:
    """A place for each engine. All GPUs serve where nothing trains; beside training, those that are left.

    An engine takes a GPU or a tensor-parallel group of one node; on the CPU it takes a node.
    """
    if not on_gpus(hardware, nodes):
        sizes = [hardware.threads or node.cpus for node in nodes if node.cpus >= (hardware.threads or 1)]
        return [{"CPU": size} for size in sizes]
    each = engine_gpus(hardware)
    whole = sum(node.gpus // each for node in nodes)
    left = sum(node.gpus for node in nodes) - (hardware.processes if beside_training else 0)
    return [{"GPU": each}] * max(0, min(whole, left // each))


def told(bundles: Sequence[Bundle]) -> str:
    """Bundles in words, e.g. "4 × 2 GPU"."""
    kinds = [" + ".join(f"{n} {kind}" for kind, n in bundle.items()) for bundle in bundles]
    return ", ".join(f"{kinds.count(kind)} × {kind}" for kind in dict.fromkeys(kinds)) or "none"


def nodes_told(nodes: Sequence[ClusterNode]) -> str:
    """Nodes in words, e.g. "10.0.0.1 (8 GPU, 96 CPU)"."""
    return ", ".join(f"{n.address} ({f'{n.gpus} GPU, ' if n.gpus else ''}{n.cpus} CPU)" for n in nodes)
