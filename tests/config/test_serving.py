"""On which GPUs a frozen policy is served, and how, stage by stage."""

from typing import Any

from diagevo.config.models import HardwareConfig, SamplingConfig
from diagevo.config.serving import Serving, serving

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
