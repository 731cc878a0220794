"""Causes as they changed, and the questions that aimed at them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import Literal

from sqlalchemy import select

from diagevo.equations.states import Tally, tallied
from diagevo.memory.events import (
    EVENT_TYPES,
    CandidateScored,
    CauseCreated,
    CauseMatched,
    CausePromoted,
    CauseReactivated,
    CauseState,
    Event,
    RoundsSuperseded,
    Trait,
    having,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.history import AsOf, History
from diagevo.memory.log.log import EVENT

Standing = CauseState | Literal["superseded"]
"""Superseded: it was made in a round that counts no more."""


@dataclass(frozen=True, slots=True)
class Change:
    """A turn of a cause's story, with its state and frequency after it."""

    fact: Fact[Event]
    state: Standing
    frequency: int


def changes(history: History, as_of: AsOf, cause_id: str) -> Iterator[Change]:
    """What happened to a cause, in order."""
    kinds = [EVENT_TYPES[name] for name in sorted(having(Trait.TURN) - {RoundsSuperseded.__name__})]
    gone: list[Fact[Event]] = [one for one in history.supersedings if one.position <= as_of.position]
    own: Iterator[Fact[Event]] = history.events(Event, *kinds, as_of=as_of, cause_id=cause_id)
    state: Standing = "superseded"
    frequency = 0
    for fact in merge(own, gone, key=lambda one: one.position):
        match fact.event:
            case CauseCreated():
                state, frequency = "active", 1
            case CausePromoted():
                state, frequency = "mastered", 0
            case CauseMatched() if state == "mastered":
                pass  # it is Active again with the event that comes next
            case CauseMatched() | CauseReactivated():
                state, frequency = "active", frequency + 1
            case RoundsSuperseded(causes=causes):
                before = next((cause for cause in causes if cause.cause_id == cause_id), None)
                back: tuple[Standing, int] = (
                    ("superseded", 0) if before is None else (before.state, before.frequency)
                )
                if back == (state, frequency):
                    continue
                state, frequency = back
            case _:
                pass  # it tells something else of the cause
        yield Change(fact, state, frequency)


@dataclass(slots=True)
class Life:
    """The rounds in which a cause changed its state."""

    created: int = 0
    promoted: list[int] = field(default_factory=list[int])
    reactivated: list[int] = field(default_factory=list[int])


def lives(history: History, as_of: AsOf) -> dict[str, Life]:
    """Of every cause created by then, in rounds that counted then."""
    found: dict[str, Life] = {}
    query = (
        select(EVENT.c.type, EVENT.c.round, EVENT.c.cause_id)
        .where(
            EVENT.c.run_id == history.run_id,
            EVENT.c.type.in_(["CauseCreated", "CausePromoted", "CauseReactivated"]),
            EVENT.c.position <= as_of.position,
        )
        .order_by(EVENT.c.position)
    )
    with history.database.read() as connection:
        gone = history.superseded(as_of)
        for kind, number, cause_id in connection.execute(query):
            if number in gone:
                continue
            life = found.setdefault(cause_id, Life())
            match kind:
                case "CauseCreated":
                    life.created = number
                case "CausePromoted":
                    life.promoted.append(number)
                case _:
                    life.reactivated.append(number)
    return found


@dataclass(slots=True)
class Aimed:
    """Questions of a round that aim at a cause."""

    questions: int = 0
    stitched: int = 0
    agreeing: int = 0
    """Σ of the majority's votes over the valid ones."""
    responses: int = 0
    """Σ of N over the valid ones."""
    tally: Tally | None = None
    verdicts: Counter[str] = field(default_factory=Counter[str])
    rewards: bool = False
    """Whether another trainer's rewards were counted."""

    def add(self, event: CandidateScored) -> None:
        self.questions += 1
        self.stitched += event.mode == "stitched"
        self.verdicts[event.verdict] += 1
        self.rewards = event.votes_are == "rewards"
        if event.verdict != "invalid":
            first, responses = event.first, event.responses
            self.agreeing += first
            self.responses += responses
            self.tally = tallied(self.tally, first, responses)


def aimed(history: History, as_of: AsOf, cause_id: str) -> dict[int, Aimed]:
    """The questions that aimed at the cause, by round."""
    found: dict[int, Aimed] = {}
    for fact in history.events(CandidateScored, as_of=as_of, cause_id=cause_id):
        found.setdefault(fact.round, Aimed()).add(fact.event)
    return found
