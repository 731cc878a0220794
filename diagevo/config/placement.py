"""How ranks are placed on a Ray cluster. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from diagevo.config.models import HardwareConfig

Bundle = dict[str, int]
"""What one process takes, by Ray's names: GPU, CPU."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """One machine of a cluster."""

    address: str
    cpus: int
    gpus: int
    memory: int = 0
    """Bytes that it gives to processes; 0: not known."""


def on_gpus(hardware: HardwareConfig, nodes: Sequence[ClusterNode]) -> bool:
    """Whether a run's models are on GPUs; `auto`: where the cluster has any."""
    return hardware.device == "cuda" or (hardware.device == "auto" and any(node.gpus for node in nodes))


def rank_bundles(hardware: HardwareConfig, nodes: Sequence[ClusterNode]) -> list[Bundle]:
    """A place for each rank: a GPU, or its threads of a CPU."""
    each = {"GPU": 1} if on_gpus(hardware, nodes) else {"CPU": hardware.threads or 1}
    return [each] * hardware.processes


def refusal(hardware: HardwareConfig, nodes: Sequence[ClusterNode]) -> tuple[str, str] | None:
    """Why the ranks cannot start on these nodes, and what fixes it; None where they can."""
    kind = "GPU" if on_gpus(hardware, nodes) else "CPU"
    [each, *_] = rank_bundles(hardware, nodes)
    places = sum((node.gpus if kind == "GPU" else node.cpus) // each[kind] for node in nodes)
    if places >= hardware.processes:
        return None
    ranks = describe_bundles(rank_bundles(hardware, nodes))
    fewer = f"set hardware.processes to {places}, or " if places else ""
    there = sum(node.gpus if kind == "GPU" else node.cpus for node in nodes)
    return f"the run takes {ranks}; the nodes have {there}", f"{fewer}add nodes"


def describe_bundles(bundles: Sequence[Bundle]) -> str:
    """Bundles in words, e.g. "4 × 2 GPU"."""
    kinds = [" + ".join(f"{n} {kind}" for kind, n in bundle.items()) for bundle in bundles]
    return ", ".join(f"{kinds.count(kind)} × {kind}" for kind in dict.fromkeys(kinds)) or "none"


def describe_nodes(nodes: Sequence[ClusterNode]) -> str:
    """Nodes in words, e.g. "10.0.0.1 (8 GPU, 96 CPU)"."""
    return ", ".join(f"{n.address} ({f'{n.gpus} GPU, ' if n.gpus else ''}{n.cpus} CPU)" for n in nodes)
