"""Places on a cluster, stage by stage, reckoned by hand."""

from typing import Any

from diagevo.config.models import HardwareConfig, SamplingConfig
from diagevo.config.placement import ClusterNode, engine_bundles, nodes_told, on_gpus, rank_bundles, told
from diagevo.config.serving import engine

TWO = [ClusterNode("10.0.0.1", 96, 8), ClusterNode("10.0.0.2", 96, 8)]
CPUS = [ClusterNode("10.0.0.1", 4, 0), ClusterNode("10.0.0.2", 2, 0)]


def hardware(**changes: Any) -> HardwareConfig:
    return HardwareConfig.model_validate({"cluster": "ray", "processes": 4, "serve": "vllm", **changes})


def test_all_gpus_serve_where_nothing_trains_and_beside_training_those_that_are_left() -> None:
    found = hardware()
    assert rank_bundles(found, TWO) == [{"GPU": 1}] * 4
    assert engine_bundles(found, TWO, beside_training=False) == [{"GPU": 1}] * 16
    assert engine_bundles(found, TWO, beside_training=True) == [{"GPU": 1}] * 12
    assert engine_bundles(hardware(processes=16), TWO, beside_training=True) == []


def test_a_tensor_parallel_group_is_on_one_node() -> None:
    found = hardware(serve_options=("--tensor-parallel-size", "3"))
    assert engine_bundles(found, TWO, beside_training=False) == [{"GPU": 3}] * 4, "two on each, two GPUs idle"
    assert engine_bundles(found, TWO, beside_training=True) == [{"GPU": 3}] * 4, (
        "ranks take those two, and two"
    )
    served = engine(found, SamplingConfig())
    assert (served.copies, served.capacity) == (1, 256)
    assert "--data-parallel-size" not in served.options


def test_without_gpus_a_node_has_one_engine_and_a_rank_its_threads() -> None:
    assert not on_gpus(hardware(), CPUS)
    assert engine_bundles(hardware(), CPUS, beside_training=False) == [{"CPU": 4}, {"CPU": 2}]
    three = hardware(threads=3)
    assert engine_bundles(three, CPUS, beside_training=False) == [{"CPU": 3}]
    assert rank_bundles(three, CPUS) == [{"CPU": 3}] * 4
    assert on_gpus(hardware(device="cuda"), CPUS), "what is asked for is asked of the cluster"


def test_places_and_nodes_are_told_in_few_words() -> None:
    assert told([{"GPU": 1}] * 4 + [{"GPU": 2}]) == "4 × 1 GPU, 1 × 2 GPU"
    assert told([]) == "none"
    assert nodes_told([TWO[0], CPUS[1]]) == "10.0.0.1 (8 GPU, 96 CPU), 10.0.0.2 (2 CPU)"
