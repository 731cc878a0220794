"""The memory rebuilt from events alone, with the paper's arithmetic: F, F₁, z, ε and p."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter

from diagevo.equations.policy import built_in, described, next_epsilon, shares
from diagevo.equations.schedule import aimed_share, z
from diagevo.equations.states import part_in_schedule
from diagevo.memory.events import (
    CauseMatched,
    CauseRenamed,
    CauseState,
    Event,
    NodesMerged,
    RoundCommitted,
    RoundOpened,
    RoundsSuperseded,
    RunConfigured,
    Trait,
    number_of,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.history import AsOf, History, point_of
from diagevo.memory.log.tables import HISTORY
from diagevo.memory.read.asking import filled
from diagevo.memory.state.model import MemoryState, by_state
from diagevo.memory.state.projection import rows, standing_rows, wrong_rows
from diagevo.memory.state.walk import walk
from diagevo.text.lines import sub


@dataclass(frozen=True, slots=True)
class CauseLine:
    """A cause and its state; `probability` is p of the next round, None for one that is not Active."""

    id: str
    description: str
    node: str
    node_label: str
    state: CauseState
    frequency: int
    probability: Fraction | None
    sum: str | None
    """p as computed: 89/730."""
    created_round: int
    partners: int
    """Mastered causes that could be stitched to it, if it is drawn."""


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A skill node as it stands."""

    id: str
    label: str
    causes: tuple[str, ...]
    active: int
    mastered: int
    dismissed: int
    failures: int
    """f of its Active causes."""


@dataclass(frozen=True, slots=True)
class Formulas:
    """How the policy computes p and ε of the next round, in its own symbols and words."""

    p: str
    p_of_round: str
    """With the round of f and F."""
    p_words: str
    epsilon: str | None
    """None if ε follows from no formula."""
    epsilon_numbers: str | None
    """The formula with its numbers filled in."""
    epsilon_words: str


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The memory at a point and the schedule that follows from it.

    Right after a commit these are the committed figures; inside a round, what a commit there would give.
    """

    round: int
    open_round: int | None
    superseded: int | None
    """Where rounds were superseded last: the first of them, of which `round` is the last."""
    events: int
    """Events folded: the run's sequence at that point."""
    failures: int
    """F: the sum of the Active causes' frequencies."""
    reference_round: int | None
    reference_failures: int | None
    """F₁, or F of the first round where it was above 0."""
    z: Fraction | None
    k: Fraction
    policy: str
    formulas: Formulas
    epsilon_next: Fraction
    active: int
    mastered: int
    dismissed: int
    nodes: int
    causes: tuple[CauseLine, ...]
    skill_nodes: tuple[NodeLine, ...]
    state_hash: str

    def cause(self, cause_id: str) -> CauseLine | None:
        return next((c for c in self.causes if c.id == cause_id), None)


def by_frequency(causes: Iterable[CauseLine]) -> tuple[CauseLine, ...]:
    """The most frequent first; equal ones by number."""
    return tuple(sorted(causes, key=lambda c: (-c.frequency, number_of(c.id))))


def describe(state: MemoryState) -> Rebuilt:
    """The figures of a state."""
    failures = state.current_failures
    reference_round, reference = state.reference(failures)
    active, mastered, dismissed = by_state(state.causes.values())
    aimed = shares(built_in(state.settings), {c.cause_id: c.frequency for c in active})
    stitching = state.settings.stitching
    ours = next_epsilon(state.settings, failures, reference)
    causes = tuple(
        CauseLine(
            id=c.cause_id,
            description=c.description,
            node=c.node_id,
            node_label=state.nodes[c.node_id].label,
            state=c.state,
            frequency=c.frequency,
            probability=share.p if (share := aimed.get(c.cause_id)) else None,
            sum=str(share) if share else None,
            created_round=c.created_round,
            partners=0
            if part_in_schedule(c.state) != "target" or stitching == "off"
            else sum(1 for m in mastered if stitching == "random" or m.node_id == c.node_id),
        )
        for c in state.causes.values()
    )
    return Rebuilt(
        round=state.round,
        open_round=state.open.number if state.open else None,
        superseded=next(
            (first for first, last in state.superseded if state.open is None and last == state.round), None
        ),
        events=state.sequence,
        failures=failures,
        reference_round=reference_round,
        reference_failures=reference,
        z=z(failures, reference),
        k=state.settings.k,
        policy=state.settings.policy,
        formulas=_formulas(state, reference_round, reference, failures),
        epsilon_next=state.epsilon if ours is None else ours,
        active=len(active),
        mastered=len(mastered),
        dismissed=len(dismissed),
        nodes=len(state.nodes),
        causes=causes,
        skill_nodes=tuple(_node(state, node_id) for node_id in state.nodes),
        state_hash=state.hash(reference_round, reference),
    )


def committed_otherwise(history: History, as_of: AsOf, memory: Rebuilt) -> Rebuilt | None:
    """The memory as the last commit recorded it, if ε or p of the next round were different then: the run was
    reconfigured since, or a cause dismissed. The views have what was recorded."""
    if memory.open_round is not None or not (done := history.counted(as_of)):
        return None
    if done[-1].round != memory.round or point_of(done[-1]) == as_of:
        return None
    then = describe(history.state(point_of(done[-1])))
    shares = ({c.id: c.probability for c in one.causes} for one in (then, memory))
    return then if then.epsilon_next != memory.epsilon_next or next(shares) != next(shares) else None


def _formulas(state: MemoryState, first: int | None, reference: int | None, failures: int) -> Formulas:
    policy, now = described(state.settings), state.open.number if state.open else state.round
    symbols = f"F{sub(first or 1)}", f"F{sub(now)}", "k"
    numbers = str(reference), str(failures), f"({state.settings.k})"
    return Formulas(
        p=policy.p_formula("f", "F"),
        p_of_round=policy.p_formula(f"f{sub(now)}(e)", f"F{sub(now)}"),
        p_words=policy.p_words,
        epsilon=policy.epsilon_formula(*symbols),
        epsilon_numbers=policy.epsilon_formula(*numbers) if reference else None,
        epsilon_words=policy.epsilon_words,
    )


def _node(state: MemoryState, node_id: str) -> NodeLine:
    node = state.nodes[node_id]
    members = [state.causes[c] for c in node.causes]
    apart = by_state(members)
    return NodeLine(
        node_id,
        node.label,
        node.causes,
        active=len(apart.active),
        mastered=len(apart.mastered),
        dismissed=len(apart.dismissed),
        failures=sum(c.frequency for c in apart.active),
    )


@dataclass(frozen=True, slots=True)
class TargetLine:
    """An Active cause in a schedule: `probability` is p, `drawn` is (1 − ε)·p."""

    cause: str
    frequency: int
    sum: str
    probability: Fraction
    drawn: Fraction
    partners: int
    node: str
    description: str


@dataclass(frozen=True, slots=True)
class ScheduleLines:
    """The schedule of `round`, from the memory as committed before it."""

    round: int
    epsilon: Fraction
    failures: int
    reference_round: int | None
    reference_failures: int | None
    z: Fraction | None
    k: Fraction
    policy: str
    formulas: Formulas
    causes: tuple[TargetLine, ...]


def next_schedule(memory: Rebuilt) -> ScheduleLines:
    """ε and p that follow from a memory, the largest p first."""
    targets = [
        filled(TargetLine, c, cause=c.id, drawn=aimed_share(memory.epsilon_next, c.probability))
        for c in memory.causes
        if c.probability is not None and c.sum is not None
    ]
    return filled(
        ScheduleLines,
        memory,
        round=memory.round + 1,
        epsilon=memory.epsilon_next,
        causes=tuple(sorted(targets, key=lambda t: (-t.frequency, number_of(t.cause)))),
    )


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """One event that changed the memory, with the cause or node before and after it."""

    position: int
    type: str
    subject: str
    before: str
    after: str
    failures: int
    """F after the event."""


def steps(history: History, round: int, as_of: AsOf) -> Iterator[MemoryChange]:
    """Each event of a round that changed the memory, in order, with its effect on f and F."""

    def shown(state: MemoryState, fact: Fact[Event]) -> str:
        return _shown(state, fact.event) if fact.round == round else ""

    for fact, before, state, _ in walk(history.log, history.run_id, shown, until=as_of.sequence):
        if fact.type == "RoundOpened" and fact.round > round:
            return
        if fact.round != round or not fact.event.traits & Trait.STEP:
            continue
        subject, after = fact.event.subject(), _shown(state, fact.event)
        match fact.event:
            case RoundOpened() | RoundCommitted():
                subject, before = f"round {round}", ""
            case RoundsSuperseded(first=first):
                subject = f"round {first}" if first == round else f"rounds {first} to {round}"
                before, after = "", f"as before round {first}"
            case RunConfigured():
                subject = "configuration"
            case CauseMatched() if before == after:
                after = f"{after}, to be reactivated"
            case NodesMerged(absorbed=absorbed, survivor=survivor):
                before, after = f"{absorbed} apart", f"{absorbed} in {survivor}"
            case CauseRenamed():
                before, after = f"“{fact.event.before}”", f"“{fact.event.description}”"
            case _:
                pass  # its subject is shown as it is
        yield MemoryChange(fact.position, fact.type, subject, before, after, state.current_failures)


def _shown(state: MemoryState, event: Event) -> str:
    subject = event.subject()
    if not subject:
        return f"ε = {state.epsilon}"
    if subject in state.causes:
        cause = state.causes[subject]
        return f"{cause.state.capitalize()}, f = {cause.frequency}"
    if subject in state.nodes:
        return f"node of {len(state.nodes[subject].causes)}"
    return ""


def compare_with_commit(history: History, as_of: AsOf) -> list[str]:
    """The causes that the round's commit wrote but that a replay from the first event does not give. A
    commit with different figures is refused by the fold."""
    state = history.state(as_of, snapshots=False)
    if not state.round or state.open is not None or any(last == state.round for _, last in state.superseded):
        return []
    # Later changes of a cause by hand are not in the rows of the commit.
    state = history.state(point_of(history.commit(state.round)), snapshots=False)
    given = sorted(standing_rows(state), key=itemgetter("cause_id"))
    names = list(given[0]) if given else ["round", "cause_id"]
    stored = rows(history.database, HISTORY, state.run_id, names, round=state.round)
    return list(wrong_rows(HISTORY, names, stored, (tuple(row.values()) for row in given)))
