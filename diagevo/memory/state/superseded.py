"""Rounds that were superseded, and the rounds that play their groups again.

Numbers of rounds go on: rounds 2 and 3 superseded, their groups are played as rounds 4 and 5. A *batch* is
the number under which groups were ingested; without a superseding it is the round's own.
"""

from collections.abc import Sequence

Spans = Sequence[tuple[int, int]]
"""First and last of the rounds that were superseded, in the order in which that happened."""


def batch_of(spans: Spans, round: int) -> int:
    """The batch that a round plays: the rounds before it that counted when it was opened, and one."""
    gone = {number for first, last in spans if last < round for number in range(first, last + 1)}
    return round - len(gone)


def played_again(spans: Spans) -> dict[int, int]:
    """Of each superseded round the one that plays its batch again; it may not have been opened yet."""
    found: dict[int, int] = {}
    for place, (first, last) in enumerate(spans):
        before = spans[:place]
        for number in range(first, last + 1):
            if number not in found:
                found[number] = last + 1 + batch_of(before, number) - batch_of(before, first)
    return found
