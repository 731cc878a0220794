"""The values of the memory: the open round and the state. Plain data, changed only by `fold.py`.

Values are frozen and replaced, so that copying a state copies only its dictionaries.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, assert_never

import msgspec

from diagevo.equations.policy import Known, Policy, ScheduledCause, built_in
from diagevo.equations.schedule import reference
from diagevo.equations.settings import Settings
from diagevo.equations.states import CauseState, Tally, part_in_schedule
from diagevo.memory.events import (
    Artifact,
    CandidateScored,
    Cause,
    DuplicateJudged,
    Embedder,
    FailureDiagnosed,
    FailureObserved,
    GroupIngested,
    Node,
    NodeAssigned,
)
from diagevo.memory.state.projected_schedule import PAPER, Schedule
from diagevo.memory.state.stored_config import settings_of
from diagevo.memory.state.vote_checks import Judging, judging

if TYPE_CHECKING:
    from diagevo.memory.events.decode import Fact

_json = msgspec.json.Encoder(order="sorted", enc_hook=str)


@dataclass(frozen=True, slots=True)
class KnownCause:
    """A cause as shown to a diagnostician."""

    cause_id: str
    state: CauseState
    description: str
    found_as: str | None = None
    """Its original description, by which a rule knows it; None if it is the current one."""

    def __post_init__(self) -> None:
        if self.found_as is None:
            object.__setattr__(self, "found_as", self.description)


class Stage(msgspec.Struct, frozen=True):
    """The status of a stage of the open round. `attempt` is the latest one, 0 if there was none."""

    status: Literal["not_started", "running", "completed", "abandoned"]
    attempt: int
    artifacts: tuple[Artifact, ...] = ()


class Began(msgspec.Struct, frozen=True, gc=False):
    """What a round started from."""

    round: int
    memory: str
    """Its fingerprint (`MemoryState.memory`)."""
    votes: int
    """The number of `MemoryState.votes`."""


@dataclass(slots=True)
class OpenRound:
    """The open round: its events, by subject. Everything here is dropped at its commit; the log keeps it."""

    number: int
    epsilon: Fraction
    seed: int
    first_sequence: int
    causes: dict[str, Cause]
    """As committed in the round before."""
    nodes: dict[str, Node]
    """As committed in the round before."""
    stages: dict[str, Stage] = field(default_factory=dict[str, Stage])
    candidates: dict[str, CandidateScored] = field(default_factory=dict[str, CandidateScored])
    tallies: dict[str, Tally] = field(default_factory=dict[str, Tally])
    promoted: set[str] = field(default_factory=set[str])
    failures: dict[str, FailureObserved] = field(default_factory=dict[str, FailureObserved])
    """The valid ones."""
    diagnoses: dict[str, FailureDiagnosed] = field(default_factory=dict[str, FailureDiagnosed])
    """The latest of each failure."""
    judged: dict[str, DuplicateJudged] = field(default_factory=dict[str, DuplicateJudged])
    assigned: dict[str, NodeAssigned] = field(default_factory=dict[str, NodeAssigned])
    settled: dict[str, str] = field(default_factory=dict[str, str])
    """Counted failures, with the cause of each."""
    reactivated: set[str] = field(default_factory=set[str])
    created: set[str] = field(default_factory=set[str])
    own_ids: dict[str, str] = field(default_factory=dict[str, str])
    """Of questions and failures, by ours: an id of the trainer's own."""
    questions_named: dict[str, str] = field(default_factory=dict[str, str])
    """Our id of each question, by the trainer's own."""
    failures_named: dict[str, str] = field(default_factory=dict[str, str])
    """The same for failures, including void ones: another attempt observes them again."""
    merging: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """Pairs judged to be one, not yet merged, with their new label."""
    expected: tuple[str, str] | None = None
    """The required next event: the reactivation of this cause, by this failure."""
    judging: Judging = field(default_factory=lambda: judging({}))

    def copy(self) -> "OpenRound":
        copied = OpenRound(*(getattr(self, f.name) for f in fields(OpenRound)))
        for f in fields(OpenRound):
            value = getattr(self, f.name)
            if isinstance(value, dict | set):
                setattr(copied, f.name, value.copy())
        return copied


@dataclass(slots=True)
class MemoryState:
    """Equation 4: M = (V, E, a), the nodes, the causes and each cause's node, as the fold of a run's events;
    with the open round, and what the schedule needs."""

    run_id: str
    sequence: int = 0
    position: int = 0
    config: dict[str, Any] | None = None
    embedder: Embedder | None = None
    configurations: int = 0
    round: int = 0
    """The last round that was committed, or superseded while it was open."""
    failures: int = 0
    """F of that round."""
    reference_round: int | None = None
    reference_failures: int | None = None
    epsilon: Fraction = Fraction(1)
    """ε of the next round, as committed."""
    causes: dict[str, Cause] = field(default_factory=dict[str, Cause])
    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    absorbed: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Merged nodes: their survivor, and the label they had."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Node pairs judged to be different, with a fingerprint of their contents."""
    next_cause: int = 1
    next_node: int = 1
    open: OpenRound | None = None
    votes: tuple[dict[str, Tally], ...] = ()
    """Under a custom policy, P_t(e) of every committed round: it may need them."""
    began: tuple[Began, ...] = ()
    """The opened rounds that count, in order: whatever supersedes one must restore what it began with."""
    superseded: tuple[tuple[int, int], ...] = ()
    """First and last of the rounds that were superseded, in order (`batch_of`)."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Each renaming of a cause, in order: its id, and its earlier description."""
    dismissals: int = 0
    """How often a cause was dismissed or reinstated."""
    assignments: int = 0
    """How often a failure was assigned to a cause, or taken out of one."""
    promotions: dict[str, int] = field(default_factory=dict[str, int])
    """The round of every promotion, by its event_id: f has the failures since."""

    def copy(self) -> "MemoryState":
        copied = MemoryState(*(getattr(self, f.name) for f in fields(MemoryState)))
        for name in ("causes", "nodes", "absorbed", "refused", "promotions"):
            setattr(copied, name, getattr(self, name).copy())
        copied.open = None if self.open is None else self.open.copy()
        return copied

    @property
    def settings(self) -> Settings:
        """The settings from the configuration; never stored separately, or a snapshot could disagree."""
        return settings_of(self.config or {})

    def active(self) -> list[Cause]:
        """Active causes in order of number."""
        return by_state(self.causes.values()).active

    def mastered(self) -> list[Cause]:
        """Mastered causes in order of number."""
        return by_state(self.causes.values()).mastered

    def left_out(self) -> list[Cause]:
        """Causes without a part in the schedule, by number, which exports and first screens leave out."""
        return [c for c in self.causes.values() if part_in_schedule(c.state) is None]

    @property
    def current_failures(self) -> int:
        """F of the causes as they are now, committed or not."""
        return sum(c.frequency for c in self.active())

    def reference(self, failures: int) -> tuple[int | None, int | None]:
        """The round of F₁ and F₁ itself, were F `failures` when the open round is committed."""
        found = reference(self.reference_failures, failures)
        if found == self.reference_failures:
            return self.reference_round, found
        return (self.open.number if self.open else self.round), found

    def schedule(self, policy: Policy | None = None) -> Schedule:
        """The schedule of the open round, or of the next one, with the memory as committed before it.

        Args:
            policy: The custom policy, if the configuration names one.
        """
        # While a round is open its schedule is what was opened, though causes have changed since.
        now = self.open
        return Schedule(
            self.last_opened if now else self.round + 1,
            now.epsilon if now else self.epsilon,
            _scheduled(now.causes, now.nodes) if now else _scheduled(self.causes, self.nodes),
            self.settings.stitching,
            policy=policy or built_in(self.settings) or PAPER,
            reference=self.reference_failures,
            k=self.settings.k,
            votes=self.votes,
        )

    def known(self) -> Known:
        """What the next round's policy may read, if the open round were committed now."""
        failures = self.current_failures
        _, first = self.reference(failures)
        active = tuple(c for c in _scheduled(self.causes, self.nodes) if not c.mastered)
        number, votes = self.round + 1, self.votes
        if self.open is not None:
            number, votes = self.open.number + 1, (*votes, self.open.tallies)
        return Known(number, failures, first, self.settings.k, active, votes)

    def hash(self, reference_round: int | None, reference_failures: int | None) -> str:
        """SHA-256 over causes, nodes and the reference: equal exactly when the memories are equal."""
        # Ids and words, not promotions or vectors: two runs with the same history have the same hash,
        # though their events have other ids.
        content = (
            reference_round,
            reference_failures,
            [(c.cause_id, c.description, c.node_id, c.state, c.frequency) for c in self.causes.values()],
            [(n.node_id, n.label, n.causes) for n in self.nodes.values()],
        )
        return hashlib.sha256(_json.encode(content)).hexdigest()

    @property
    def memory(self) -> str:
        """A fingerprint of everything that a superseding restores: equal exactly when the memories are."""
        figures = self.failures, self.reference_round, self.reference_failures, self.epsilon
        content = [*self.causes.values()], [*self.nodes.values()], self.absorbed, self.refused, figures
        return hashlib.sha256(_json.encode(content)).hexdigest()

    def found_as(self, cause: Cause) -> str:
        """A cause's original description: its vector belongs to it, whatever the current one is."""
        before = (words for cause_id, words in self.renamed if cause_id == cause.cause_id)
        return next(before, cause.description)

    def known_cause(self, cause: Cause, state: CauseState | None = None) -> KnownCause:
        """A cause as shown to a diagnostician, in `state` or its own."""
        return KnownCause(cause.cause_id, state or cause.state, cause.description, self.found_as(cause))

    @property
    def last_opened(self) -> int:
        """The round that was opened last: the open one, else the last that was committed or superseded."""
        return self.round if self.open is None else self.open.number

    def batch(self, round: int) -> int:
        """The number under which the groups of a round were ingested (`batch_of`)."""
        return batch_of(self.superseded, round)

    def counted(self, rounds: Iterable[int] | None = None) -> list[int]:
        """Those of the rounds, or of all opened ones, that were not superseded."""
        of = range(1, self.last_opened + 1) if rounds is None else rounds
        return [n for n in of if not any(first <= n <= last for first, last in self.superseded)]

    def pair(self, a: str, b: str) -> tuple[str, str]:
        """Two nodes, the lower number first."""
        return (a, b) if self.nodes[a].number < self.nodes[b].number else (b, a)

    def fingerprint(self, a: str, b: str) -> str:
        """A fingerprint of two nodes' contents: labels and members."""
        content = [(n.label, n.causes) for n in (self.nodes[a], self.nodes[b])]
        return hashlib.sha256(_json.encode(content)).hexdigest()


class ByState(NamedTuple):
    """Causes split by state, each in the given order."""

    active: list[Cause]
    mastered: list[Cause]
    dismissed: list[Cause]


def by_state(causes: Iterable[Cause]) -> ByState:
    """The causes of each state."""
    found = ByState([], [], [])
    for cause in causes:
        match cause.state:
            case "active":
                found.active.append(cause)
            case "mastered":
                found.mastered.append(cause)
            case "dismissed":
                found.dismissed.append(cause)
            case _:
                assert_never(cause.state)
    return found


def _scheduled(causes: Mapping[str, Cause], nodes: Mapping[str, Node]) -> tuple[ScheduledCause, ...]:
    found: list[ScheduledCause] = []
    for c in causes.values():
        part = part_in_schedule(c.state)
        if part == "partner" or (part == "target" and c.frequency):
            label, mastered = nodes[c.node_id].label, part == "partner"
            found.append(ScheduledCause(c.cause_id, c.description, c.node_id, label, mastered, c.frequency))
    return tuple(found)


Spans = Sequence[tuple[int, int]]
"""First and last of the rounds that were superseded, in the order in which that happened."""


def batch_of(spans: Spans, round: int) -> int:
    """The batch that a round plays: the rounds before it that counted when it was opened, and one.

    Numbers of rounds go on: rounds 2 and 3 superseded, their groups are played as rounds 4 and 5. A *batch*
    is the number under which groups were ingested; without a superseding it is the round's own.
    """
    # Only spans that ended before it: at its opening a later superseding was not known.
    gone = {number for first, last in spans if last < round for number in range(first, last + 1)}
    return round - len(gone)


def played_again(spans: Spans) -> dict[int, int]:
    """For each superseded round the one that repeats its batch; it may not have been opened yet."""
    found: dict[int, int] = {}
    for place, (first, last) in enumerate(spans):
        before = spans[:place]
        for number in range(first, last + 1):
            if number not in found:
                found[number] = last + 1 + batch_of(before, number) - batch_of(before, first)
    return found


class Attempts:
    """A training's attempts: each began with a step, and voids what earlier ones wrote from there on."""

    def __init__(self, ingested: Iterable["Fact[GroupIngested]"]) -> None:
        """`ingested`: all of the run's groups, in order."""
        self._began: dict[int, tuple[int, int]] = {}
        for fact in ingested:
            group = fact.event
            if group.attempt > 1:
                self._began.setdefault(group.attempt, (group.step, fact.position))

    @property
    def last(self) -> int:
        return max(self._began, default=1)

    def void(self, step: int, attempt: int, before: int | None = None) -> bool:
        """Whether a later attempt began at this step or before, by position `before`."""
        return any(
            later > attempt and began <= step and (before is None or position < before)
            for later, (began, position) in self._began.items()
        )
