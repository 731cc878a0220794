"""Where a device runs out of memory, the setting that says how much it holds at once is named."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from diagevo.errors import OutOfMemoryError


@contextmanager
def in_memory(setting: str, held: Callable[[], int]) -> Iterator[None]:
    """A block whose memory `setting` bounds; it held as much as `held` says. Raises OutOfMemoryError."""
    try:
        yield
    except RuntimeError as error:
        told = str(error)
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in told:
            raise
        message = f"out of memory: {told.splitlines()[0]}"
        raise OutOfMemoryError(message, setting=setting, held=held()) from error
