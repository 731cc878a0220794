"""The device and precision of models, and the error if memory runs out."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from diagevo.config.models import HardwareConfig
from diagevo.errors import ConfigError, MissingDependencyError, OutOfMemoryError

_OUT = re.compile("can't allocate memory|out of memory", re.IGNORECASE)


def uses_cpu(hardware: HardwareConfig) -> bool:
    """Whether models are on the CPU. MissingDependencyError if a GPU was requested but is missing."""
    import torch

    if hardware.device == "cuda" and not torch.cuda.is_available():
        raise MissingDependencyError(
            "hardware.device is cuda, but no CUDA device is there.",
            hint="Set hardware.device to auto or cpu.",
        )
    return hardware.device == "cpu" or not torch.cuda.is_available()


def numbers_of(hardware: HardwareConfig) -> str:
    """The precision of the arithmetic. Trained weights stay float32."""
    on_cpu = uses_cpu(hardware)
    numbers = hardware.precision
    if numbers == "auto":
        numbers = "float32" if on_cpu else "bfloat16"
    if on_cpu and numbers == "float16":
        raise ConfigError("hardware.precision float16 needs a GPU.", hint="Set it to auto.")
    return numbers


@contextmanager
def in_memory(setting: str, held: Callable[[], int]) -> Iterator[None]:
    """A block whose memory is limited by `setting`, with the value `held` in use. Raises OutOfMemoryError."""
    try:
        yield
    except RuntimeError as error:
        import torch

        message = str(error)
        # torch on a CPU, and vLLM on waking, raise a plain RuntimeError.
        if not isinstance(error, torch.OutOfMemoryError) and not _OUT.search(message):
            raise
        message = f"out of memory: {message.splitlines()[0]}"
        raise OutOfMemoryError(message, setting=setting, held=held()) from error
