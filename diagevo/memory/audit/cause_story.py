"""The story of a cause as values: each kind of turn that its life takes, and what it does to the schedule."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, assert_never

from diagevo.memory.audit.failures import FailureStory, ModelExchange, Named, nearest
from diagevo.memory.audit.timeline.causes import Standing
from diagevo.memory.events import CandidateVerdict, Mode
from diagevo.text.numbers import count, number, percent, sub


@dataclass(frozen=True, slots=True)
class Created:
    """New under a node, because no stored cause was the same."""

    round: int
    position: int
    node_id: str
    new_node: bool
    evidence: FailureStory
    event: Literal["created"] = "created"


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
    """Its text, where the full story is asked for."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """Active → Mastered: the sums behind the score."""

    round: int
    position: int
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
    """The questions, invalid ones left out, where they were asked for."""
    rewards: bool = False
    """Whether another trainer's rewards were counted, not answers that agree."""
    event: Literal["promoted"] = "promoted"


@dataclass(frozen=True, slots=True)
class _Failures:
    """Failures of one round that were assigned to the cause."""

    round: int
    position: int
    failures: int
    recurrences: int
    deduplications: int
    frequency: int
    """f after the round's last of them."""
    evidence: tuple[FailureStory, ...]
    against_false_labels: int | None
    """How many of them failed against a label that is false; None where no truth is known."""


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
class Merged:
    """The cause's node and another one became one; state and frequency stay."""

    round: int
    position: int
    survivor: str
    absorbed: str
    label: str
    similarity: float | None
    moved: bool
    """Whether the cause itself changed its node."""
    call: ModelExchange | None
    event: Literal["merged"] = "merged"


@dataclass(frozen=True, slots=True)
class Sampled:
    """How the schedule of a round aimed at the cause, and what came of it."""

    round: int
    position: int
    """Of the round's schedule."""
    epsilon: Fraction
    probability: Fraction
    frequency: int
    failures: int
    questions: int
    stitched: int
    verdicts: dict[str, int]
    consistency: Fraction | None
    """Mean p1 over the valid questions, to be held against θ_up."""
    threshold: Fraction
    """θ_up in force in that round."""
    reached: bool
    """Whether the votes promoted it."""
    rewards: bool = False
    """Whether the questions are prompts that another trainer chose, counted by its rewards."""
    event: Literal["sampled"] = "sampled"


@dataclass(frozen=True, slots=True)
class Superseded:
    """Rounds `first` to `round` count no more; the cause is again as it was before them."""

    round: int
    position: int
    first: int
    state: Standing
    frequency: int
    event: Literal["superseded"] = "superseded"


@dataclass(frozen=True, slots=True)
class Renamed:
    """An auditor corrected its words."""

    round: int
    position: int
    before: str
    after: str
    event: Literal["renamed"] = "renamed"


Turn = Renamed | Created | Promoted | Counted | Reactivated | Merged | Sampled | Superseded


@dataclass(frozen=True, slots=True)
class Effect:
    """What the cause does to the schedule of the next round, as committed."""

    round: int
    """Whose schedule it is."""
    epsilon: Fraction
    epsilon_without: Fraction | None
    """ε had the cause counted no failure; None where a policy of one's own says it: audits run no code."""
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
    """created, promoted or reactivated: the last change of state."""
    turns: tuple[Turn, ...]
    effect: Effect | None


def line(turn: Turn) -> tuple[str, list[str]]:
    """A turn in words: its kind, and its line in pieces, of which ids are `Named`."""
    match turn:
        case Created(evidence=e):
            where = [" · new cause under ", "new node " * turn.new_node, Named(turn.node_id)]
            return "created", [Named(e.failure_id), *where, " (", *nearest(e), ")"]
        case Sampled():
            return ("asked", [_returned(turn)]) if turn.rewards else ("sampled", [_drawn(turn)])
        case Promoted():
            votes = f"Σ{'passes' if turn.rewards else 'votes'} {turn.agreeing}/{turn.responses}"
            plain = Fraction(turn.agreeing, turn.responses or 1) == turn.consistency
            mean = f"{votes}{' =' if plain else ', mean p₁'} {number(turn.consistency)}"
            over = f"over {count(turn.questions, 'question')}, closed f = {turn.closed_frequency}"
            return "promoted", [f"{mean} ≥ {number(turn.threshold, 2)} {over}"]
        case Counted():
            return "counted", [f"{_assigned(turn, 'failure')} → f = {turn.frequency}"]
        case Reactivated():
            undone = f"undoing the promotion of round {turn.promoted_round}"
            if turn.promoted_round == turn.round:
                undone = "promoted this round"
            new = _assigned(turn, "new failure")
            return "reactivated", [f"{new} → Active, f = {turn.frequency}, {undone}"]
        case Merged():
            near = "" if turn.similarity is None else f", cosine {turn.similarity:.2f}, judged one skill"
            nodes = ["node ", Named(turn.absorbed), " into ", Named(turn.survivor)]
            return "merged", [*nodes, f" “{turn.label}”", near]
        case Renamed():
            return "renamed", [f"from “{turn.before}”", f" to “{turn.after}”"]
        case Superseded():
            one = turn.first == turn.round
            rounds = f"round {turn.first} was" if one else f"rounds {turn.first} to {turn.round} were"
            now = f"again {turn.state.capitalize()}, f = {turn.frequency}"
            gone = turn.state == "superseded"
            return "superseded", [f"{rounds} superseded; {'this cause no longer exists' if gone else now}"]
        case _:
            assert_never(turn)


def _assigned(turn: Counted | Reactivated, what: str) -> str:
    """How the failures of a turn came to be counted, and what the truth says of their labels."""
    ways = (
        count(turn.recurrences, "recurrence") if turn.recurrences else "",
        count(turn.deduplications, "deduplication") if turn.deduplications else "",
    )
    false = f", {turn.against_false_labels} against a false label" if turn.against_false_labels else ""
    return f"{count(turn.failures, what)} ({', '.join(filter(None, ways))}){false}"


def _drawn(turn: Sampled) -> str:
    p = f"p{sub(turn.round)} = {turn.frequency}/{turn.failures} = {percent(turn.probability)}"
    share = f"{p} of the {percent(1 - turn.epsilon)} targeted"
    if not turn.questions:
        return f"{share}, no question drawn"
    stitched = f" ({turn.stitched} stitched)" if turn.stitched else ""
    kept = turn.verdicts.get("kept", 0)
    return f"{share}: {count(turn.questions, 'question')}{stitched}, {kept} kept{_mean(turn, 'p₁')}"


def _returned(turn: Sampled) -> str:
    """What another trainer asked again of the cause: nobody drew it by p."""
    if not turn.questions:
        return "no prompt that aims at it came"
    came = f"{count(turn.questions, 'prompt')} that {'aims' if turn.questions == 1 else 'aim'} at it"
    kept = turn.verdicts.get("kept", 0)
    return f"{came}, {kept} with passes and failures{_mean(turn, 'pass rate')}"


def _mean(turn: Sampled, of: str) -> str:
    if turn.consistency is None:
        return ""
    reached = "≥" if turn.consistency >= turn.threshold else "<"
    return f", mean {of} {number(turn.consistency)} {reached} {number(turn.threshold, 2)}"
