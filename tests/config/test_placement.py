"""Places on a cluster and GPUs of one machine, stage by stage, reckoned by hand."""

from typing import Any

import pytest

from diagevo.config.models import HardwareConfig
from diagevo.config.resources import (
    ClusterNode,
    describe_bundles,
    describe_nodes,
    on_gpus,
    rank_bundles,
    refusal,
)

TWO = [ClusterNode("10.0.0.1", 96, 8), ClusterNode("10.0.0.2", 96, 8)]
CPUS = [ClusterNode("10.0.0.1", 4, 0), ClusterNode("10.0.0.2", 2, 0)]


def hardware(**changes: Any) -> HardwareConfig:
    return HardwareConfig.model_validate({"cluster": "ray", "processes": 4, **changes})


def test_a_rank_has_a_gpu_or_where_there_are_none_its_threads() -> None:
    assert rank_bundles(hardware(processes=16), TWO) == [{"GPU": 1}] * 16
    assert not on_gpus(hardware(), CPUS)
    assert rank_bundles(hardware(threads=3), CPUS) == [{"CPU": 3}] * 4
    assert on_gpus(hardware(device="cuda"), CPUS), "what is asked for is asked of the cluster"


def test_places_and_nodes_are_told_in_few_words() -> None:
    assert describe_bundles([{"GPU": 1}] * 4 + [{"GPU": 2}]) == "4 × 1 GPU, 1 × 2 GPU"
    assert describe_bundles([]) == "none"
    assert describe_nodes([TWO[0], CPUS[1]]) == "10.0.0.1 (8 GPU, 96 CPU), 10.0.0.2 (2 CPU)"


@pytest.mark.parametrize(
    ("changes", "nodes", "why", "fix"),
    [
        (
            {"processes": 17},
            TWO,
            "the run takes 17 × 1 GPU; the nodes have 16",
            "set hardware.processes to 16, or add nodes",
        ),
        (
            {"processes": 1, "device": "cuda"},
            CPUS,
            "the run takes 1 × 1 GPU; the nodes have 0",
            "add nodes",
        ),
        (
            {"processes": 4, "threads": 2},
            CPUS,
            "the run takes 4 × 2 CPU; the nodes have 6",
            "set hardware.processes to 3, or add nodes",
        ),
    ],
)
def test_what_cannot_start_is_refused_with_what_mends_it(
    changes: dict[str, Any], nodes: list[ClusterNode], why: str, fix: str
) -> None:
    assert refusal(hardware(**changes), nodes) == (why, fix)


def test_the_hint_can_be_followed() -> None:
    assert refusal(hardware(processes=16), TWO) is None
    assert refusal(hardware(processes=3, threads=2), CPUS) is None
