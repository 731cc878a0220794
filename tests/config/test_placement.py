"""Places on a cluster and GPUs of one machine, stage by stage, reckoned by hand."""

from typing import Any

import pytest

from diagevo.config.models import HardwareConfig, SamplingConfig
from diagevo.config.placement import (
    ClusterNode,
    engine_bundles,
    nodes_told,
    on_gpus,
    rank_bundles,
    refusal,
    told,
)
from diagevo.config.serving import Serving, engine, serving

TWO = [ClusterNode("10.0.0.1", 96, 8), ClusterNode("10.0.0.2", 96, 8)]
CPUS = [ClusterNode("10.0.0.1", 4, 0), ClusterNode("10.0.0.2", 2, 0)]


def hardware(**changes: Any) -> HardwareConfig:
    return HardwareConfig.model_validate({"cluster": "ray", "processes": 4, "serve": "vllm", **changes})


def test_all_gpus_train_or_serve() -> None:
    found = hardware(processes=16)
    assert rank_bundles(found, TWO) == [{"GPU": 1}] * 16
    assert engine_bundles(found, TWO) == [{"GPU": 1}] * 16


def test_a_tensor_parallel_group_is_on_one_node() -> None:
    found = hardware(serve_options=("--tensor-parallel-size", "3"))
    assert engine_bundles(found, TWO) == [{"GPU": 3}] * 4, "two on each, two GPUs idle"
    served = engine(found, SamplingConfig())
    assert (served.copies, served.capacity) == (1, 256)
    assert "--data-parallel-size" not in served.options


def test_without_gpus_a_node_has_one_engine_and_a_rank_its_threads() -> None:
    assert not on_gpus(hardware(), CPUS)
    assert engine_bundles(hardware(), CPUS) == [{"CPU": 4}, {"CPU": 2}]
    three = hardware(threads=3)
    assert engine_bundles(three, CPUS) == [{"CPU": 3}]
    assert rank_bundles(three, CPUS) == [{"CPU": 3}] * 4
    assert on_gpus(hardware(device="cuda"), CPUS), "what is asked for is asked of the cluster"


def test_places_and_nodes_are_told_in_few_words() -> None:
    assert told([{"GPU": 1}] * 4 + [{"GPU": 2}]) == "4 × 1 GPU, 1 × 2 GPU"
    assert told([]) == "none"
    assert nodes_told([TWO[0], CPUS[1]]) == "10.0.0.1 (8 GPU, 96 CPU), 10.0.0.2 (2 CPU)"


@pytest.mark.parametrize(
    ("changes", "nodes", "why", "fix"),
    [
        (
            {"processes": 17},
            TWO,
            "training takes 17 × 1 GPU; the nodes have 16",
            "set hardware.processes to 16, or add nodes",
        ),
        (
            {"processes": 1, "device": "cuda"},
            CPUS,
            "training takes 1 × 1 GPU; the nodes have 0",
            "add nodes",
        ),
        (
            {"serve_options": ("--tensor-parallel-size", "16")},
            TWO,
            "an engine takes 16 GPUs of one node; none has more than 8",
            "lower --tensor-parallel-size or --pipeline-parallel-size in hardware.serve_options",
        ),
        (
            {"processes": 4, "threads": 2},
            CPUS,
            "training takes 4 × 2 CPU; the nodes have 6",
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


EIGHT = {"device": "cuda", "processes": 4, "serve": "vllm", "serve_gpus": (4, 5, 6)}
ONE = {"device": "cuda", "serve": "vllm"}


def of(changes: dict[str, Any]) -> Serving:
    return serving(HardwareConfig(**changes), SamplingConfig())


def test_a_server_has_a_copy_on_each_of_its_gpus() -> None:
    found = of(EIGHT | {"serve_memory": 0.6})
    assert (found.gpus, found.copies, found.capacity, found.memory) == ((4, 5, 6), 3, 768, 0.6)
    assert found.options == (
        *("--max-num-seqs", "256", "--max-model-len", "6144"),
        *("--data-parallel-size", "3", "--gpu-memory-utilization", "0.6"),
    )


def test_where_none_are_named_the_gpus_that_train_sample_too() -> None:
    assert (of(ONE).gpus, of(ONE).memory) == ((0,), 0.9)
    assert of(ONE | {"processes": 3}).gpus == (0, 1, 2)
    assert of(ONE | {"processes": 2, "train_gpus": (1, 2)}).gpus == (1, 2)


def test_a_copy_on_two_gpus_halves_the_copies() -> None:
    split = EIGHT | {"serve_gpus": (0, 1, 2, 4, 5, 6), "serve_options": ("--tensor-parallel-size=2",)}
    assert of(split).copies == 3


def test_what_the_configuration_says_to_vllm_itself_counts() -> None:
    said = ONE | {"serve_options": ("--gpu-memory-utilization", "0.3", "--max-num-seqs", "64")}
    found = of(said)
    assert (found.memory, found.capacity) == (0.3, 64)
    assert found.options[-4:] == ("--gpu-memory-utilization", "0.3", "--max-num-seqs", "64")


def test_on_the_cpu_no_share_of_a_gpu_is_named() -> None:
    found = of({"device": "cpu", "serve": "vllm", "processes": 2})
    assert (found.gpus, found.copies) == ((), 1)
    assert "--gpu-memory-utilization" not in found.options
