"""The story of a cause as values: each kind of turn, and its effect on the schedule."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from diagevo.memory.events import CandidateVerdict, CauseState, Mode
from diagevo.memory.stories.failures import FailureStory, ModelExchange

Standing = CauseState | Literal["superseded"]
"""Superseded: it was made in a round that no longer counts."""


@dataclass(frozen=True, slots=True)
class _Turn:
    round: int
    position: int
    """Of the event in the log; of a round's questions that of its schedule."""


@dataclass(frozen=True, slots=True)
class Created(_Turn):
    """New under a node, because no stored cause was the same."""

    node_id: str
    new_node: bool
    evidence: FailureStory
    event: Literal["created"] = "created"


@dataclass(frozen=True, slots=True)
class Added(_Turn):
    """Somebody added it in their own words."""

    node_id: str
    new_node: bool
    by: str
    at: str
    """When, UTC."""
    evidence: FailureStory
    event: Literal["added"] = "added"


@dataclass(frozen=True, slots=True)
class Assigned(_Turn):
    """Somebody assigned a failure to this cause."""

    failure_id: str
    by: str
    at: str
    """When, UTC."""
    note: str | None
    undo: bool
    """Whether this undoes an earlier move: it is back under this cause, as diagnosed."""
    state: CauseState
    frequency: int
    event: Literal["assigned"] = "assigned"


@dataclass(frozen=True, slots=True)
class Unassigned(_Turn):
    """Somebody took a failure out of this cause."""

    failure_id: str
    by: str
    at: str
    """When, UTC."""
    state: CauseState
    frequency: int
    event: Literal["unassigned"] = "unassigned"


@dataclass(frozen=True, slots=True)
class Vote:
    """A question that aimed at the cause, as it counts for the promotion."""

    question_id: str
    position: int
    mode: Mode
    agreeing: int
    responses: int
    label: str | None
    label_true: bool | None
    verdict: CandidateVerdict
    question: str | None
    """Its text, if the full story is requested."""


@dataclass(frozen=True, slots=True)
class Promoted(_Turn):
    """Active → Mastered: the sums behind the score."""

    event_id: str
    questions: int
    agreeing: int
    """Σ of the majority's votes over the questions."""
    responses: int
    """Σ of N over the questions."""
    consistency: Fraction
    """The recorded mean of p1."""
    threshold: Fraction
    closed_frequency: int
    votes: tuple[Vote, ...]
    """The questions, without invalid ones, if they were requested."""
    rewards: bool = False
    """Whether another trainer's rewards were counted, not answers that agree."""
    event: Literal["promoted"] = "promoted"


@dataclass(frozen=True, slots=True)
class _Failures(_Turn):
    """Failures of one round that were assigned to the cause."""

    failures: int
    recurrences: int
    deduplications: int
    frequency: int
    """f after the round's last of them."""
    evidence: tuple[FailureStory, ...]
    against_false_labels: int | None
    """How many of them failed against a false label; None if no truth is known."""


@dataclass(frozen=True, slots=True)
class Counted(_Failures):
    """While it was Active. `position` is that of the last match."""

    event: Literal["counted"] = "counted"


@dataclass(frozen=True, slots=True)
class Reactivated(_Failures):
    """Mastered → Active: Δ new failures of a round. `position` is that of the reactivation."""

    undone: str
    """event_id of the promotion."""
    promoted_round: int | None
    event: Literal["reactivated"] = "reactivated"


@dataclass(frozen=True, slots=True)
class Merged(_Turn):
    """The cause's node and another one became one; state and frequency stay."""

    survivor: str
    absorbed: str
    label: str
    similarity: float | None
    moved: bool
    """Whether the cause itself changed its node."""
    call: ModelExchange | None
    event: Literal["merged"] = "merged"


@dataclass(frozen=True, slots=True)
class Sampled(_Turn):
    """How a round's schedule aimed at the cause, and the result."""

    epsilon: Fraction
    probability: Fraction
    sum: str
    """p as computed: 89/730."""
    frequency: int
    failures: int
    questions: int
    stitched: int
    verdicts: dict[str, int]
    consistency: Fraction | None
    """Mean p1 over the valid questions, to be compared with θ_up."""
    threshold: Fraction
    """θ_up in force in that round."""
    reached: bool
    """Whether the votes promoted it."""
    rewards: bool = False
    """Whether the questions are prompts that another trainer chose, counted by its rewards."""
    event: Literal["sampled"] = "sampled"


@dataclass(frozen=True, slots=True)
class Superseded(_Turn):
    """Rounds `first` to `round` no longer count; the cause is as it was before them."""

    first: int
    state: Standing
    frequency: int
    event: Literal["superseded"] = "superseded"


@dataclass(frozen=True, slots=True)
class Renamed(_Turn):
    """An auditor corrected its description."""

    before: str
    after: str
    event: Literal["renamed"] = "renamed"


@dataclass(frozen=True, slots=True)
class Dismissed(_Turn):
    """Somebody recorded that it is not the model's fault."""

    because: str
    by: str
    at: str
    """When, UTC."""
    frequency: int
    event: Literal["dismissed"] = "dismissed"


@dataclass(frozen=True, slots=True)
class Reinstated(_Turn):
    """The dismissal was undone."""

    by: str
    at: str
    """When, UTC."""
    state: CauseState
    frequency: int
    event: Literal["reinstated"] = "reinstated"


Turn = (
    Renamed
    | Dismissed
    | Reinstated
    | Added
    | Assigned
    | Unassigned
    | Created
    | Promoted
    | Counted
    | Reactivated
    | Merged
    | Sampled
    | Superseded
)


@dataclass(frozen=True, slots=True)
class Effect:
    """The cause's effect on the next round's schedule, as committed."""

    round: int
    """Whose schedule it is."""
    epsilon: Fraction
    epsilon_without: Fraction | None
    """ε if the cause had no failures; None under a custom policy: audits run no code."""
    probability: Fraction


@dataclass(frozen=True, slots=True)
class CauseStory:
    cause_id: str
    description: str
    node_id: str
    node_label: str
    state: Standing
    frequency: int
    since: int
    """Round of the last change of state."""
    how: str
    """The turn that last changed its state: created, promoted, reactivated, dismissed, …"""
    turns: tuple[Turn, ...]
    effect: Effect | None
