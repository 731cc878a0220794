"""A run folded event by event from the first, without trusting a snapshot. Replay, verify, rebuild and the
recheck use it. A cause's story reads its events by their index.
"""

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from diagevo.memory.events import Event
from diagevo.memory.events.decode import Fact
from diagevo.memory.log.log import Log
from diagevo.memory.state.fold import advance
from diagevo.memory.state.model import MemoryState, OpenRound

B = TypeVar("B")


class Moment(NamedTuple, Generic[B]):
    """An event and the memory around it."""

    fact: Fact[Event]
    before: B
    """What the caller saved of the memory right before the event."""
    after: MemoryState
    """The memory right after it; the same object throughout."""
    closed: OpenRound | None
    """The round that it committed."""


def walk(
    log: Log, run_id: str, before: Callable[[MemoryState, Fact[Event]], B], *, until: int | None = None
) -> Iterator[Moment[B]]:
    """Every event up to sequence `until`, folded. Copying a state at each would take longer than the fold, so
    `before` selects what to save of it. Raises InconsistentError at an event that does not follow."""
    state = MemoryState(run_id)
    for fact in log.facts(run_id, until=until):
        kept, now = before(state, fact), state.open
        advance(state, fact)
        yield Moment(fact, kept, state, now if fact.type == "RoundCommitted" else None)


def nothing(state: MemoryState, fact: Fact[Event]) -> None:
    """Saves nothing of the memory before an event, if only the state after it is needed."""
