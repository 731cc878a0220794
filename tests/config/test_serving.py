"""On which GPUs a frozen policy is served, and how, stage by stage."""

from typing import Any

import pytest

from diagevo.config.models import HardwareConfig, SamplingConfig
from diagevo.config.serving import Serving, serving

EIGHT = {"device": "cuda", "processes": 4, "serve": "vllm", "serve_gpus": (4, 5, 6)}
ONE = {"device": "cuda", "serve": "vllm", "serve_gpus": (0,), "serve_memory": 0.2}


def of(changes: dict[str, Any], *, beside_training: bool) -> Serving:
    return serving(HardwareConfig(**changes), SamplingConfig(), beside_training=beside_training)


def test_a_stage_that_only_samples_has_the_gpus_of_training_too() -> None:
    beside, alone = (of(EIGHT, beside_training=b) for b in (True, False))
    assert (beside.gpus, beside.copies, beside.capacity) == ((4, 5, 6), 3, 768)
    assert (alone.gpus, alone.copies, alone.capacity) == ((0, 1, 2, 3, 4, 5, 6), 7, 1792)
    assert beside.memory == alone.memory == 0.9
    assert alone.options == (
        *("--max-num-seqs", "256", "--max-model-len", "6144"),
        *("--data-parallel-size", "7", "--gpu-memory-utilization", "0.9"),
    )


def test_on_a_gpu_that_trains_too_a_server_takes_its_share_and_all_of_it_afterwards() -> None:
    assert [of(ONE, beside_training=b).memory for b in (True, False)] == [0.2, 0.9]
    assert [of(ONE, beside_training=b).gpus for b in (True, False)] == [(0,), (0,)]


def test_a_copy_on_two_gpus_halves_the_copies() -> None:
    split = EIGHT | {"serve_options": ("--tensor-parallel-size=2",)}
    assert [of(split, beside_training=b).copies for b in (True, False)] == [1, 3]


def test_what_the_configuration_says_to_vllm_itself_counts() -> None:
    said = ONE | {"serve_options": ("--gpu-memory-utilization", "0.3", "--max-num-seqs", "64")}
    found = of(said, beside_training=True)
    assert (found.memory, found.capacity) == (0.3, 64)
    assert found.options[-4:] == ("--gpu-memory-utilization", "0.3", "--max-num-seqs", "64")


@pytest.mark.parametrize("beside", [True, False])
def test_on_the_cpu_no_share_of_a_gpu_is_named(beside: bool) -> None:
    found = of({"device": "cpu", "serve": "vllm"}, beside_training=beside)
    assert (found.gpus, found.copies) == ((), 1)
    assert "--gpu-memory-utilization" not in found.options
