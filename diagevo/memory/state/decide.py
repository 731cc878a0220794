"""What follows from the facts: pure decisions, state in, events out. The fold recomputes them at every
replay. The arithmetic is in `diagevo.equations`."""

from fractions import Fraction

from diagevo.equations.policy import next_epsilon
from diagevo.equations.states import counted, provisional
from diagevo.memory.events import (
    CauseCreated,
    CauseMatched,
    CausePromoted,
    CauseReactivated,
    DuplicateJudged,
    Event,
    NodeAssigned,
    NodeCreated,
    RoundCommitted,
    RoundOpened,
    RoundsSuperseded,
    Via,
    Weight,
)
from diagevo.memory.state.model import MemoryState


def opening(state: MemoryState, seed: int, policy_epsilon: Fraction | None = None) -> RoundOpened:
    """The next round with its schedule, as committed in the round before. `policy_epsilon` is ε from a
    custom policy, and is ignored under a built-in one: the policy may have been named after that commit."""
    ours = next_epsilon(state.settings, state.failures, state.reference_failures)
    return RoundOpened(
        epsilon=str(state.epsilon if ours is not None or policy_epsilon is None else policy_epsilon),
        failures=state.failures,
        reference_failures=state.reference_failures,
        k=str(state.settings.k),
        seed=seed,
        weights=[Weight(cause_id=c.cause_id, frequency=c.frequency) for c in state.active() if c.frequency],
    )


def promotion(state: MemoryState, cause_id: str) -> CausePromoted | None:
    """Active → Mastered if the votes on the questions that aim at the cause promote it.

    A cause that was created this round was not Active when the round began, so it is in no P_t.
    """
    now, settings = state.open, state.settings
    tally = now.tallies.get(cause_id) if now else None
    cause = state.causes.get(cause_id)
    if tally is None or cause is None:
        return None
    if provisional(cause.state, cause.frequency, tally, settings)[0] == cause.state:
        return None
    return CausePromoted(
        cause_id=cause_id,
        questions=tally.questions,
        consistency=str(tally.score),
        threshold=str(settings.theta_up),
        closed_frequency=cause.frequency,
    )


def promotions(state: MemoryState) -> list[CausePromoted]:
    """The open round's promotions that are not recorded yet, in order of cause number."""
    now = state.open
    due = [] if now is None else [c for c in state.causes if c in now.tallies and c not in now.promoted]
    decided = (promotion(state, cause_id) for cause_id in due)
    return [event for event in decided if event is not None]


def settlement(
    state: MemoryState, failure_id: str, judged: DuplicateJudged | None, assigned: NodeAssigned | None
) -> list[Event]:
    """The consequences of one diagnosed failure, in order: a match (and reactivation), or a new cause.

    Exactly one cause gains one failure: Δ of Equation 8, one at a time.
    """
    assert state.open is not None
    diagnosis = state.open.diagnoses[failure_id]
    if diagnosis.verdict == "recurrence":
        return _match(state, failure_id, diagnosis.cause_id, "recurrence", None)
    # A duplicate gains the failure instead of a second cause in other words.
    if judged is not None and judged.duplicate:
        return _match(state, failure_id, judged.cause_id, "deduplication", similarity_of(judged))
    assert assigned is not None
    assert diagnosis.description is not None
    events: list[Event] = []
    node_id = assigned.node_id
    # The node comes first: a cause is created under an existing one.
    if node_id is None:
        assert assigned.new_label is not None
        node_id = f"n{state.next_node}"
        events.append(NodeCreated(node_id=node_id, label=assigned.new_label))
    cause_id = f"c{state.next_cause}"
    created = CauseCreated(
        cause_id=cause_id, description=diagnosis.description, node_id=node_id, failure_id=failure_id
    )
    return [*events, created]


def similarity_of(judged: DuplicateJudged) -> float | None:
    """The similarity of the cause that a failure duplicates, as shown among the candidates."""
    for candidate in judged.candidates:
        if candidate.cause_id == judged.cause_id:
            return candidate.similarity
    return None


def _match(
    state: MemoryState, failure_id: str, cause_id: str | None, via: Via, similarity: float | None
) -> list[Event]:
    assert cause_id is not None
    matched = CauseMatched(cause_id=cause_id, failure_id=failure_id, via=via, similarity=similarity)
    cause = state.causes.get(cause_id)
    if cause is None:
        return [matched]  # the fold refuses it
    # Active stays Active; a failure of a Mastered cause also says that the promotion did not hold.
    if counted(cause.state, cause.frequency, 1)[0] == cause.state:
        return [matched]
    assert cause.promotion is not None
    return [matched, CauseReactivated(cause_id=cause_id, failure_id=failure_id, promotion=cause.promotion)]


def commitment(state: MemoryState, policy_epsilon: Fraction | None = None) -> RoundCommitted:
    """The commit of the open round: F, the reference, the next ε, the counts and the hash of the state.
    `policy_epsilon` is ε from a custom policy, and is ignored under a built-in one."""
    now = state.open
    assert now is not None
    # F of the causes as they are now, after the round's own failures and promotions; F₁ is fixed by the
    # first round that has any.
    failures = state.current_failures
    reference_round, reference_failures = state.reference(failures)
    ours = next_epsilon(state.settings, failures, reference_failures)
    epsilon = policy_epsilon if ours is None else ours
    assert epsilon is not None
    return RoundCommitted(
        failures=failures,
        reference_round=reference_round,
        reference_failures=reference_failures,
        epsilon_next=str(epsilon),
        active=len(state.active()),
        mastered=len(state.mastered()),
        nodes=len(state.nodes),
        state_hash=state.hash(reference_round, reference_failures),
        undiagnosed=sum(
            1 for f in now.failures if f not in now.diagnoses or now.diagnoses[f].verdict == "unresolved"
        ),
    )


def superseding(
    before: MemoryState, opened: RoundOpened, first: int, last: int, reason: str
) -> RoundsSuperseded:
    """Rounds `first` to `last` no longer count: back to the memory `before`, in which `first` was
    `opened`."""
    return RoundsSuperseded(
        first=first,
        last=last,
        reason=reason,
        failures=before.failures,
        reference_round=before.reference_round,
        reference_failures=before.reference_failures,
        epsilon=opened.epsilon,
        causes=list(before.causes.values()),
        nodes=list(before.nodes.values()),
        absorbed=before.absorbed,
        refused=before.refused,
    )


def restored(event: RoundsSuperseded) -> MemoryState:
    """Only the part of a state that it restores: the memory."""
    memory = MemoryState("")
    memory.causes = {cause.cause_id: cause for cause in event.causes}
    memory.nodes = {node.node_id: node for node in event.nodes}
    memory.absorbed, memory.refused = dict(event.absorbed), dict(event.refused)
    memory.failures, memory.epsilon = event.failures, Fraction(event.epsilon)
    memory.reference_round, memory.reference_failures = event.reference_round, event.reference_failures
    return memory
