"""Which groups of a run stand, where its training was resumed from a checkpoint and wrote steps again."""

from collections.abc import Iterator, Mapping

from diagevo.memory.events import GroupIngested
from diagevo.memory.memory import Memory


def groups(memory: Memory, first: int, last: int) -> Iterator[tuple[int, GroupIngested]]:
    """The groups of these batches, in order, with their batches: void ones too."""
    for recorded in memory.log.read(memory.run_id, types=["GroupIngested"], rounds=(first, last)):
        event = recorded.event
        assert isinstance(event, GroupIngested)
        yield recorded.round, event


class Attempts:
    """A training's attempts: each began with a step, and voids what earlier ones wrote from there on."""

    def __init__(self, began: Mapping[int, int]) -> None:
        """`began`: the first step of each attempt after the first."""
        self.began = dict(began)

    @classmethod
    def of(cls, memory: Memory) -> "Attempts":
        """As the log has them."""
        began: dict[int, int] = {}
        for _, group in groups(memory, 0, 2**31 - 1):
            if group.attempt > 1:
                began[group.attempt] = min(group.step, began.get(group.attempt, group.step))
        return cls(began)

    @property
    def last(self) -> int:
        return max(self.began, default=1)

    def stands(self, group: GroupIngested) -> bool:
        """Whether no later attempt began at its step or before."""
        return all(step > group.step for attempt, step in self.began.items() if attempt > group.attempt)
