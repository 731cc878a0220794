"""What the first page of a run is told from: its questions, failures and their causes, read once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from diagevo.memory.events import (
    CandidateScored,
    CauseCreated,
    CauseMatched,
    CausePromoted,
    CauseReactivated,
    FailureObserved,
    number_of,
)
from diagevo.memory.history import History
from diagevo.memory.state.projection import ROUND

READ = 50_000
"""Events that a first page reads at most, beyond those of its last round."""
TYPES = (
    CandidateScored,
    FailureObserved,
    CauseCreated,
    CauseMatched,
    CausePromoted,
    CauseReactivated,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A finding in words, and the page with its evidence."""

    name: str
    text: str
    evidence: str | None = None


@dataclass(slots=True)
class Facts:
    """Of the rounds that count: all, or of a long run the last ones."""

    rounds: list[int]
    """That are read, the open one too."""
    left_out: int
    """Earlier rounds."""
    ingested: bool
    steered: bool
    """Whether prompts of another trainer were drawn by this memory."""
    questions: dict[str, tuple[int, CandidateScored]] = field(
        default_factory=dict[str, tuple[int, CandidateScored]]
    )
    failures: dict[str, tuple[int, FailureObserved]] = field(
        default_factory=dict[str, tuple[int, FailureObserved]]
    )
    """Without those that were taken back with their attempt."""
    cause_of: dict[str, str] = field(default_factory=dict[str, str])
    """Of a failure."""
    promoted: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    reactivated: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])

    @property
    def span(self) -> str:
        """ "round 1", "rounds 1 to 3"."""
        first, last = self.rounds[0], self.rounds[-1]
        return f"round {first}" if first == last else f"rounds {first} to {last}"

    @property
    def most(self) -> list[str]:
        """The causes, those of most failures first."""
        number = Counter(self.cause_of.values())
        return sorted(number, key=lambda cause: (-number[cause], number_of(cause)))

    def aimed(self) -> Iterator[tuple[int, CandidateScored, str]]:
        """The questions that aimed at a cause, with their rounds and the cause."""
        for number, scored in self.questions.values():
            if scored.cause_id is not None:
                yield number, scored, scored.cause_id


def is_short(history: History) -> bool:
    """Whether a page of the run can afford to read all of its candidates and failures."""
    return history.end.sequence <= READ


def facts(history: History) -> Facts:
    """Of a run as it is now."""
    state = history.state(history.end)
    counted = state.counted()
    rounds = _affordable(history, counted)
    steered = history.steered
    found = Facts(rounds, len(counted) - len(rounds), history.ingested is not None, steered)
    if not rounds:
        return found
    counts = set(rounds)
    for fact in history.log.chosen(history.run_id, TYPES, (rounds[0], rounds[-1])):
        number = fact.round
        if number not in counts:
            continue
        match fact.event:
            case CandidateScored() as scored:
                found.questions[scored.question_id] = number, scored
            case FailureObserved() as failure:
                if not history.abandoned.void(number, failure):
                    found.failures[failure.failure_id] = number, failure
            case (
                CauseCreated(failure_id=name, cause_id=cause) | CauseMatched(failure_id=name, cause_id=cause)
            ):
                found.cause_of[name] = cause
            case CausePromoted(cause_id=cause):
                found.promoted.append((number, cause))
            case CauseReactivated(cause_id=cause):
                found.reactivated.append((number, cause))
    return found


def _affordable(history: History, rounds: Sequence[int]) -> list[int]:
    """The last rounds with READ events at most, and the last committed one in any case."""
    query = select(ROUND.c.round, ROUND.c.first_sequence).where(ROUND.c.run_id == history.run_id)
    with history.database.read() as connection:
        begin = {row.round: row.first_sequence for row in connection.execute(query)}
    committed = [number for number in rounds if number in begin]
    enough = [number for number in committed if history.end.sequence - begin[number] < READ]
    first = min(enough or committed[-1:], default=0)
    return [number for number in rounds if number >= first]
