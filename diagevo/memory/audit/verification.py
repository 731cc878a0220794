"""What a verification found."""

from dataclasses import dataclass, field

from diagevo.memory.events.records import GENESIS


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that is not as it was written. `position` and `event_id` name the first bad event, if there
    is one."""

    check: str
    message: str
    position: int | None = None
    event_id: str | None = None


@dataclass(slots=True)
class Verification:
    """What was checked and what was found. `notes` say what could not be checked."""

    run_id: str
    events: int = 0
    rounds: int = 0
    heads: int = 0
    copied: int = 0
    """Heads in the given copy."""
    texts: int = 0
    head: str = GENESIS
    faults: list[Fault] = field(default_factory=list[Fault])
    notes: list[str] = field(default_factory=list[str])

    @property
    def ok(self) -> bool:
        return not self.faults
