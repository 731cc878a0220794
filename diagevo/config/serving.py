"""How a frozen policy is served by vLLM: on which GPUs, in how many copies, with how much of each. Pure."""

from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlsplit

from diagevo.config.models import HardwareConfig, SamplingConfig

_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


@dataclass(frozen=True, slots=True)
class Serving:
    """A server started by DiagEvo for a stage in which nothing trains."""

    gpus: tuple[int, ...]
    """Counted among the visible."""
    copies: int
    """Of the model, each with an engine of its own."""
    used: int
    """GPUs that the copies take."""
    memory: float
    """Share of each GPU that it takes."""
    capacity: int
    """Completions that all copies together decode at once."""
    answer: int
    """Tokens of a prompt and its answer in the mean."""
    options: tuple[str, ...]
    """Of `vllm serve`; what the configuration names comes last and so counts."""


def training_gpus(hardware: HardwareConfig) -> tuple[int, ...]:
    """The GPUs of one machine that train; none on the CPU."""
    return () if hardware.device == "cpu" else hardware.train_gpus or tuple(range(hardware.processes))


def serving_gpus(hardware: HardwareConfig) -> tuple[int, ...]:
    """The GPUs of one machine that sample where nothing trains; none where no GPU is asked for."""
    return hardware.serve_gpus or (training_gpus(hardware) if hardware.device == "cuda" else ())


def serving(hardware: HardwareConfig, sampling: SamplingConfig) -> Serving:
    """The server of a stage: a copy of the model on each of its GPUs, or on each group of them."""
    given, gpus = options_of(hardware), serving_gpus(hardware)
    each = engine_gpus(hardware)
    copies = _size(given, "data") if "--data-parallel-size" in given else max(1, len(gpus) // each)
    options = ["--max-num-seqs", str(hardware.rows_at_once)]
    options += ["--max-model-len", str(sampling.max_prompt_tokens + sampling.max_new_tokens)]
    if copies > 1:
        options += ["--data-parallel-size", str(copies)]
    if hardware.device != "cpu":
        options += ["--gpu-memory-utilization", f"{hardware.serve_memory:g}"]
    return Serving(
        gpus=gpus,
        copies=copies,
        used=copies * each,
        memory=float(given.get("--gpu-memory-utilization", hardware.serve_memory)),
        capacity=copies * int(given.get("--max-num-seqs", hardware.rows_at_once)),
        answer=mean_tokens(sampling),
        options=(*options, *hardware.serve_options),
    )


def mean_tokens(sampling: SamplingConfig) -> int:
    """Tokens of prompt and answer that a plan reckons with: an eighth of the longest."""
    return max(1, (sampling.max_prompt_tokens + sampling.max_new_tokens) // 8)


def engine_gpus(hardware: HardwareConfig) -> int:
    given = options_of(hardware)
    return _size(given, "tensor") * _size(given, "pipeline") if hardware.serve == "vllm" else 1


def engine(hardware: HardwareConfig, sampling: SamplingConfig) -> Serving:
    """The server of one engine of a cluster, whichever GPUs it has."""
    its_own = {"train_gpus": (), "serve_gpus": tuple(range(engine_gpus(hardware)))}
    return serving(hardware.model_copy(update=its_own), sampling)


def options_of(hardware: HardwareConfig) -> dict[str, str]:
    """`hardware.serve_options` by name, however they are cut into words."""
    return dict(pairwise(" ".join(hardware.serve_options).replace("=", " ").split()))


def on_this_machine(url: str | None) -> bool:
    """Whether an endpoint is here, so that it takes one of this machine's GPUs."""
    return url is not None and urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


def _size(given: dict[str, str], kind: str) -> int:
    size = given.get(f"--{kind}-parallel-size", "1")
    return max(1, int(size)) if size.isdecimal() else 1


def lora_slots(rank: int) -> int:
    """What vLLM takes as the largest rank of its adapters, where ours have `rank`."""
    return next((allowed for allowed in _LORA_RANKS if allowed >= rank), rank)
