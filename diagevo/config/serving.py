"""How a frozen policy is served by vLLM: on which GPUs, in how many copies, with how much of each. Pure."""

from dataclasses import dataclass
from itertools import pairwise

from diagevo.config.models import HardwareConfig, SamplingConfig

ALONE = 0.9  # share of a GPU that a server has to itself


@dataclass(frozen=True, slots=True)
class Serving:
    """A server started by DiagEvo in one stage."""

    gpus: tuple[int, ...]
    """Counted among the visible; none named: those that vLLM takes first."""
    copies: int
    """Of the model, each with an engine of its own."""
    used: int
    """GPUs that the copies take."""
    memory: float
    """Share of each GPU that it takes."""
    capacity: int
    """Completions that all copies together decode at once."""
    options: tuple[str, ...]
    """Of `vllm serve`; what the configuration names comes last and so counts."""


def training_gpus(hardware: HardwareConfig) -> tuple[int, ...]:
    """The GPUs of one machine that train; none on the CPU."""
    return () if hardware.device == "cpu" else hardware.train_gpus or tuple(range(hardware.processes))


def serving(hardware: HardwareConfig, sampling: SamplingConfig, *, beside_training: bool) -> Serving:
    """The server of a stage: in one that only samples it has the GPUs of training too, and whole ones."""
    given = options_of(hardware)
    gpus, training = hardware.serve_gpus, training_gpus(hardware)
    if gpus and not beside_training:
        gpus = tuple(sorted({*gpus, *training}))
    each = engine_gpus(hardware)
    copies = _size(given, "data") if "--data-parallel-size" in given else max(1, len(gpus) // each)
    shared = beside_training and bool(set(gpus or range(copies * each)) & set(training))
    memory = hardware.serve_memory if shared else ALONE
    options = ["--max-num-seqs", str(hardware.rows_at_once)]
    options += ["--max-model-len", str(sampling.max_prompt_tokens + sampling.max_new_tokens)]
    if copies > 1:
        options += ["--data-parallel-size", str(copies)]
    if hardware.device != "cpu":
        options += ["--gpu-memory-utilization", f"{memory:g}"]
    return Serving(
        gpus=gpus,
        copies=copies,
        used=copies * each,
        memory=float(given.get("--gpu-memory-utilization", memory)),
        capacity=copies * int(given.get("--max-num-seqs", hardware.rows_at_once)),
        options=(*options, *hardware.serve_options),
    )


def engine_gpus(hardware: HardwareConfig) -> int:
    """GPUs of one engine."""
    given = options_of(hardware)
    return _size(given, "tensor") * _size(given, "pipeline") if hardware.serve == "vllm" else 1


def engine(hardware: HardwareConfig, sampling: SamplingConfig) -> Serving:
    """The server of one engine that has its GPUs, whichever they are, to itself."""
    its_own = {"processes": 1, "train_gpus": (), "serve_gpus": tuple(range(engine_gpus(hardware)))}
    alone = hardware.model_copy(update=its_own)
    return serving(alone, sampling, beside_training=False)


def options_of(hardware: HardwareConfig) -> dict[str, str]:
    """`hardware.serve_options` by name, however they are cut into words."""
    return dict(pairwise(" ".join(hardware.serve_options).replace("=", " ").split()))


def _size(given: dict[str, str], kind: str) -> int:
    size = given.get(f"--{kind}-parallel-size", "1")
    return max(1, int(size)) if size.isdecimal() else 1
