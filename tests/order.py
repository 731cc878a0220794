"""Which tests each worker of pytest-xdist begins with."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def shares(long: Sequence[T], short: Sequence[T], workers: int) -> list[T]:
    """All of both, so that each worker's share begins with its part of the long ones.

    pytest-xdist gives each worker the next len // workers of the list. One that has done with its share takes
    from the end of another's: that must hold nothing long, else one worker waits for it alone.
    """
    ordered: list[T] = []
    begun = taken = 0
    for worker in range(1, workers + 1):
        ordered += long[begun : (begun := len(long) * worker // workers)]
        room = max(0, (len(long) + len(short)) * worker // workers - len(ordered))
        ordered += short[taken : (taken := taken + room)]
    return ordered
