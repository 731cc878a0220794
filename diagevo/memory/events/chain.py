"""One run's events in their order, each held against the one before it: the door that a bundle, a fork and a
verification go through. Pure; whether an event follows from the memory is the fold's business."""

import re
from datetime import datetime

from diagevo.errors import DiagEvoError
from diagevo.memory.events.catalogue import LARGEST, Event
from diagevo.memory.events.records import GENESIS, Recorded, event_id

UNFIT = (DiagEvoError, ValueError, RecursionError)
"""What `Chain` raises at an event that no writer wrote there; the message says why."""
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Chain:
    """Where a history stands: `follows`, then `read`, is each further event."""

    def __init__(self) -> None:
        self.hash: str = GENESIS
        self.sequence = 0
        self._ids: set[str] = set()
        """Of the round under way."""
        self._promotions: set[str] = set()
        """Of every promotion: later events may name those."""

    def follows(self, recorded: Recorded) -> None:
        """Take its hash. Raises ValueError where its bytes are others, or it does not come next."""
        if recorded.sequence != self.sequence + 1:
            missing = f"event {self.sequence + 1} of the run is missing"
            raise ValueError(f"{missing}: #{recorded.position} is event {recorded.sequence}")
        what = f"#{recorded.position} {recorded.type}"
        if recorded.hash != recorded.computed_hash:
            raise ValueError(f"the bytes of {what} are not those that were written")
        if recorded.previous_hash != self.hash:
            raise ValueError(f"{what} does not follow the event before it")
        self.hash, self.sequence = recorded.hash, recorded.sequence

    def read(self, recorded: Recorded) -> Event:
        """What it says. Raises ValueError or DiagEvoError where payload and envelope do not agree, or are not
        spelled as a writer spells them."""
        event = recorded.event
        if "\\u0000" in recorded.payload and _NUL.search(recorded.payload):
            raise ValueError("it holds a NUL, which no database keeps")
        if not 0 <= recorded.round <= LARGEST:
            raise ValueError(f"its round is {recorded.round}")
        if not _is_time(recorded.recorded_at):
            raise ValueError(f"its time is {recorded.recorded_at!r}, not one of UTC with microseconds")
        if recorded.event_id != event_id(recorded.round, recorded.type, event.key()):
            raise ValueError("its id is another event's")
        if recorded.cause_id != getattr(event, "cause_id", None):
            raise ValueError("its cause is not its payload's")
        origin = recorded.causation_id
        if origin is not None and origin not in self._ids and origin not in self._promotions:
            raise ValueError("what it follows from is not in its round")
        self._ids.add(recorded.event_id)
        if recorded.type == "CausePromoted":
            self._promotions.add(recorded.event_id)
        elif recorded.type in ("RoundCommitted", "RoundsSuperseded"):
            self._ids.clear()
        return event


def _is_time(text: str) -> bool:
    """As `log.now` writes it, and not before there were such logs."""
    found = datetime.fromisoformat(text)
    return found.isoformat(timespec="microseconds") == text and text.endswith("+00:00") and found.year >= 2020
