"""The fold: `apply(state, event) -> state`. No I/O and no clock; integers and fractions only.

Facts change the state; consequences change it too, and each is checked against what follows from the facts
(`decide.py`). An event that does not follow raises InconsistentError with its position.
"""

from collections.abc import Iterable
from fractions import Fraction

from msgspec.structs import replace

from diagevo.errors import InconsistentError
from diagevo.memory import decide
from diagevo.memory.decode import Fact
from diagevo.memory.model import (
    Assigned,
    Candidate,
    Cause,
    Diagnosis,
    Judged,
    KnownCause,
    MemoryState,
    Node,
    Observation,
    Round,
    Settings,
    Stage,
    Tally,
    settings_of,
)

__all__ = [
    "Cause",
    "KnownCause",
    "MemoryState",
    "Node",
    "Round",
    "Settings",
    "Stage",
    "advance",
    "apply",
    "fold",
]


STAGES = ("challenger", "candidates", "votes", "solver", "diagnosis")
"""The stages of our own loop, in order. Diagnosis may begin while the solver still trains."""


def apply(state: MemoryState, fact: Fact) -> MemoryState:
    """The state after one event; `state` itself is left as it was."""
    return advance(state.copy(), fact)


def fold(facts: Iterable[Fact], state: MemoryState) -> MemoryState:
    """The state after all of `facts`; `state` itself is left as it was."""
    state = state.copy()
    for fact in facts:
        advance(state, fact)
    return state


def advance(state: MemoryState, fact: Fact) -> MemoryState:
    """Change `state` by one event and return it: `apply` for a state that nobody else holds."""
    try:
        if fact.type == "CheckpointEvaluated":
            pass  # a measurement of any round
        elif state.open is None:
            _between_rounds(state, fact)
        else:
            _in_round(state, state.open, fact)
    except (InconsistentError, KeyError) as error:
        what = f"names {error}, which the run does not have" if isinstance(error, KeyError) else error.args[0]
        raise InconsistentError(f"#{fact.position} {fact.type} {fact.event_id}: {what}") from error
    state.sequence = fact.sequence
    state.position = fact.position
    return state


def _between_rounds(state: MemoryState, fact: Fact) -> None:
    match fact.type:
        case "RoundOpened":
            _opened(state, fact.event, fact)
        case "RunConfigured":
            _configured(state, fact.event)
        case _:
            raise InconsistentError("no round is open")


def _in_round(state: MemoryState, now: Round, fact: Fact) -> None:
    if fact.round != now.number:
        raise InconsistentError(f"it says round {fact.round}, the open round is {now.number}")
    event = fact.event
    match fact.type:
        case "CandidateScored":
            _scored(state, now, event, fact.event_id)
        case "FailureObserved":
            _observed(now, event)
        case "FailureDiagnosed":
            _diagnosed(now, event)
        case "CauseMatched":
            _matched(state, now, event)
        case "DuplicateJudged":
            _judged(state, now, event)
        case "NodeAssigned":
            _assigned(state, now, event)
        case "CauseCreated":
            _cause_created(state, now, event)
        case "NodeCreated":
            _node_created(state, now, event)
        case "CauseReactivated":
            _reactivated(state, now, event)
        case "CausePromoted":
            _promoted(state, now, event, fact.event_id)
        case "NodePairJudged":
            _pair_judged(state, now, event)
        case "NodesMerged":
            _merged(state, now, event)
        case "StageStarted":
            _stage_started(now, event)
        case "StageCompleted":
            _stage_completed(now, event)
        case "StageAbandoned":
            _stage_abandoned(now, event)
        case "RoundCommitted":
            _committed(state, now, event)
        case "RoundOpened" | "RunConfigured":
            raise InconsistentError(f"round {now.number} is open")
        case _:
            raise InconsistentError("this version does not know such an event")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InconsistentError(message)


def _configured(state: MemoryState, event) -> None:
    state.config = event.config
    state.embedder = (event.embedder.name, event.embedder.dimension, event.embedder.revision)
    state.configurations = event.number
    state.settings = settings_of(event.config)
    state.epsilon = decide.next_epsilon(state.settings, state.failures, state.reference_failures)


def _opened(state: MemoryState, event, fact: Fact) -> None:
    _require(fact.round == state.round + 1, f"round {state.round} is the last committed one")
    expected = decide.opening(state, event.seed)
    given = [(w.cause_id, w.frequency) for w in event.weights]
    _require(
        given == [(w.cause_id, w.frequency) for w in expected.weights], "its weights are not those committed"
    )
    _require(
        (event.epsilon, event.failures, event.reference_failures, event.k)
        == (expected.epsilon, expected.failures, expected.reference_failures, expected.k),
        f"ε is {event.epsilon}, committed was {expected.epsilon}",
    )
    state.open = Round(
        fact.round, state.epsilon, event.seed, fact.sequence, state.causes.copy(), state.nodes.copy()
    )


def _stage_started(now: Round, event) -> None:
    before = now.stages.get(event.stage)
    _require(
        before is None or before.status == "abandoned", f"stage {event.stage} is {before and before.status}"
    )
    attempt = 1 if before is None else before.attempt + 1
    _require(event.attempt == attempt, f"attempt {event.attempt} where {attempt} comes next")
    for name, stage in now.stages.items():
        if stage.status == "running" and (event.stage, name) != ("diagnosis", "solver"):
            raise InconsistentError(f"stage {name} is under way")
    if event.stage in STAGES:
        late = [s for s in STAGES[STAGES.index(event.stage) + 1 :] if s in now.stages]
        _require(not late, f"stage {late} began before it")
    now.stages[event.stage] = Stage("running", event.attempt)


def _running(now: Round, event) -> Stage:
    stage = now.stages.get(event.stage)
    if stage is None or stage.status != "running" or stage.attempt != event.attempt:
        raise InconsistentError(f"attempt {event.attempt} of stage {event.stage} is not under way")
    return stage


def _stage_completed(now: Round, event) -> None:
    _running(now, event)
    artifacts = tuple((a.path, a.sha256) for a in event.artifacts)
    now.stages[event.stage] = Stage("completed", event.attempt, artifacts)


def _stage_abandoned(now: Round, event) -> None:
    _running(now, event)
    now.stages[event.stage] = Stage("abandoned", event.attempt, (), event.after_step)
    # A restart at an earlier step than the last one plays those steps again, whoever saw them first.
    void = [f for f, o in now.failures.items() if o.stage == event.stage and o.step > event.after_step]
    for failure_id in void:
        del now.failures[failure_id]
        now.diagnoses.pop(failure_id, None)


def _scored(state: MemoryState, now: Round, event, event_id: str) -> None:
    question_id, cause_id, verdict = event.question_id, event.cause_id, event.verdict
    if now.promoted or now.failures or "solver" in now.stages:
        raise InconsistentError("all candidates are scored before promotions and the solver's stage")
    if question_id in now.candidates:
        raise InconsistentError(f"{question_id} was scored before")
    now.candidates[question_id] = Candidate(event.mode, cause_id, event.stitched_cause_id, verdict, event_id)
    if cause_id is None:
        _require(event.mode == "free", "a targeted question without a cause")
        return
    target = now.causes[cause_id]
    _require(event.mode != "free", "a free question with a cause")
    _require(target.state == "active", f"its target {cause_id} was not Active when the round began")
    if event.stitched_cause_id is not None:
        _require(now.causes[event.stitched_cause_id].state == "mastered", "its partner was not Mastered")
    if verdict != "invalid":
        tally = now.tallies.get(cause_id)
        share = Fraction(event.first, event.responses)
        now.tallies[cause_id] = (
            Tally(1, share, event_id)
            if tally is None
            else Tally(tally.questions + 1, tally.consistency + share, event_id)
        )


def _promoted(state: MemoryState, now: Round, event, event_id: str) -> None:
    expected = decide.promotion(state, event.cause_id)
    _require(expected is not None, f"the votes do not promote {event.cause_id}")
    assert expected is not None
    _require(
        (event.questions, event.consistency, event.threshold, event.closed_frequency)
        == (expected.questions, expected.consistency, expected.threshold, expected.closed_frequency),
        f"the votes give {expected.consistency} over {expected.questions} questions",
    )
    _require(not now.failures and "solver" not in now.stages, "promotions come before the solver's stage")
    cause = state.causes[event.cause_id]
    state.causes[event.cause_id] = replace(cause, state="mastered", frequency=0, promotion=event_id)
    now.promoted.add(event.cause_id)


def _observed(now: Round, event) -> None:
    failure_id = event.failure_id
    if now.candidates[event.question_id].verdict != "kept":
        raise InconsistentError(f"{event.question_id} was not kept")
    if failure_id in now.failures:
        raise InconsistentError(f"{failure_id} was observed before and is not void")
    stage = now.stages.get(event.stage)
    if stage is None:
        if event.attempt != 1:
            raise InconsistentError(f"stage {event.stage} has no attempt {event.attempt}")
    elif stage.status != "running" or stage.attempt != event.attempt:
        raise InconsistentError(f"attempt {event.attempt} of stage {event.stage} is not under way")
    now.failures[failure_id] = Observation(
        event.question_id, event.stage, event.attempt, event.step, event.trajectory, event.reference
    )


def _diagnosed(now: Round, event) -> None:
    failure_id, cause_id, verdict = event.failure_id, event.cause_id, event.verdict
    if now.failures[failure_id].attempt != event.attempt:
        raise InconsistentError(f"attempt {event.attempt} of {failure_id} is void")
    before = now.diagnoses.get(failure_id)
    if before is not None and before.verdict != "unresolved":
        raise InconsistentError(f"{failure_id} was diagnosed before")
    candidate = now.candidates[now.failures[failure_id].question_id]
    for shown in event.supplied:
        shown_id: str = shown.cause_id
        if shown_id != candidate.cause_id and shown_id != candidate.stitched_cause_id:
            raise InconsistentError(f"{shown_id} was not given to the question's writer")
        if now.causes[shown_id].state != shown.state:
            raise InconsistentError(f"{shown_id} was not {shown.state} as committed")
    if (verdict == "recurrence") != (cause_id is not None):
        raise InconsistentError("a recurrence names its cause, and nothing else does")
    if cause_id is not None and all(cause_id != shown.cause_id for shown in event.supplied):
        raise InconsistentError(f"{cause_id} was not supplied")
    if (verdict == "new_cause") != (event.description is not None):
        raise InconsistentError("a new cause has a description, and nothing else has")
    now.diagnoses[failure_id] = Diagnosis(event.attempt, event.asked, verdict, cause_id, event.description)


def _pending(now: Round, failure_id: str, verdict: str) -> Diagnosis:
    """The diagnosis of a failure that is about to be settled."""
    if now.expected is not None:
        raise InconsistentError(f"the reactivation of {now.expected} must come first")
    solver = now.stages.get("solver")
    if solver is not None and solver.status != "completed":
        raise InconsistentError("failures are counted when the solver's stage is complete")
    diagnosis = now.diagnoses[failure_id]
    if failure_id in now.settled:
        raise InconsistentError(f"{failure_id} was counted before")
    if diagnosis.verdict != verdict:
        raise InconsistentError(f"{failure_id} is a {diagnosis.verdict}")
    return diagnosis


def _judged(state: MemoryState, now: Round, event) -> None:
    _pending(now, event.failure_id, "new_cause")
    _require(
        event.duplicate == (event.cause_id is not None), "a duplicate names its cause, and nothing else does"
    )
    _require(event.failure_id not in now.judged, "it was judged before")
    now.judged[event.failure_id] = Judged(event.duplicate, event.cause_id)


def _assigned(state: MemoryState, now: Round, event) -> None:
    _pending(now, event.failure_id, "new_cause")
    _require(not now.judged[event.failure_id].duplicate, "a duplicate needs no node")
    _require(
        (event.node_id is None) != (event.new_label is None), "a node, or the label of a new one, is needed"
    )
    _require(event.node_id is None or event.node_id in state.nodes, f"there is no node {event.node_id}")
    now.assigned[event.failure_id] = Assigned(event.node_id, event.new_label)


def _node_created(state: MemoryState, now: Round, event) -> None:
    _require(event.node_id == f"n{state.next_node}", f"n{state.next_node} comes next")
    state.nodes[event.node_id] = Node(event.node_id, state.next_node, event.label)
    state.next_node += 1


def _cause_created(state: MemoryState, now: Round, event) -> None:
    diagnosis = _pending(now, event.failure_id, "new_cause")
    assigned = now.assigned[event.failure_id]
    node = state.nodes[event.node_id]
    _require(event.cause_id == f"c{state.next_cause}", f"c{state.next_cause} comes next")
    _require(event.description == diagnosis.description, "its description is not the diagnosed one")
    if assigned.node_id is None:
        _require(not node.causes and node.label == assigned.new_label, "it was assigned to a new node")
    else:
        _require(assigned.node_id == event.node_id, f"it was assigned to {assigned.node_id}")
    state.causes[event.cause_id] = Cause(
        event.cause_id,
        state.next_cause,
        event.description,
        event.node_id,
        "active",
        1,
        now.number,
        event.failure_id,
    )
    state.nodes[event.node_id] = replace(node, causes=(*node.causes, event.cause_id))
    state.next_cause += 1
    now.created.add(event.cause_id)
    now.settled.add(event.failure_id)


def _matched(state: MemoryState, now: Round, event) -> None:
    failure_id, cause_id = event.failure_id, event.cause_id
    named: str | None
    if event.via == "recurrence":
        named = _pending(now, failure_id, "recurrence").cause_id
    else:
        _pending(now, failure_id, "new_cause")
        named = now.judged[failure_id].cause_id
    if named != cause_id:
        raise InconsistentError(f"{failure_id} was put down to {named}, not to {cause_id}")
    cause = state.causes[cause_id]
    if cause.state == "active":
        state.causes[cause_id] = replace(cause, frequency=cause.frequency + 1)
    else:
        now.expected = cause_id
    now.settled.add(failure_id)


def _reactivated(state: MemoryState, now: Round, event) -> None:
    cause = state.causes[event.cause_id]
    _require(now.expected == event.cause_id, f"no failure was matched to a Mastered {event.cause_id}")
    _require(event.promotion == cause.promotion, "it undoes another promotion than the cause's last")
    state.causes[event.cause_id] = replace(cause, state="active", frequency=1)
    now.expected = None
    now.reactivated.add(event.cause_id)


def _pair_judged(state: MemoryState, now: Round, event) -> None:
    a, b = state.pair(*event.nodes)
    _require(a != b, "a node cannot be merged with itself")
    _require(not unsettled(now), "diagnosed failures are not counted yet")
    if event.merge:
        now.merging[a, b] = event.label
    else:
        state.refused[f"{a}.{b}"] = state.fingerprint(a, b)


def _merged(state: MemoryState, now: Round, event) -> None:
    survivor, absorbed = state.nodes[event.survivor], state.nodes[event.absorbed]
    _require(survivor.number < absorbed.number, "the lower id survives")
    pair = (event.survivor, event.absorbed)
    if pair not in now.merging:
        raise InconsistentError("the pair was not judged to be one")
    label = now.merging.pop(pair)
    _require(event.label == (label or survivor.label), "its label is not the judged one")
    members = sorted((*survivor.causes, *absorbed.causes), key=lambda c: state.causes[c].number)
    for cause_id in absorbed.causes:
        state.causes[cause_id] = replace(state.causes[cause_id], node_id=event.survivor)
    state.nodes[event.survivor] = replace(survivor, label=event.label, causes=tuple(members))
    del state.nodes[event.absorbed]
    state.absorbed[event.absorbed] = (event.survivor, absorbed.label)


def _committed(state: MemoryState, now: Round, event) -> None:
    _require(now.expected is None, f"the reactivation of {now.expected} is missing")
    _require(not now.merging, "a merge that was decided is missing")
    waiting = unsettled(now)
    _require(not waiting, f"{len(waiting)} diagnosed failures are not counted, first {waiting[:1]}")
    due = {
        c
        for c, tally in now.tallies.items()
        if state.settings.state_updates
        and tally.questions >= state.settings.promotion_questions
        and tally.consistency / tally.questions >= state.settings.theta_up
    }
    _require(due == now.promoted, f"the votes promote {sorted(due)}, recorded are {sorted(now.promoted)}")
    for cause in state.causes.values():
        right = cause.frequency >= 1 if cause.state == "active" else cause.frequency == 0
        _require(right, f"{cause.cause_id} is {cause.state} with f = {cause.frequency}")
    expected = decide.commitment(state)
    for name in type(expected).model_fields:
        given, right = getattr(event, name, None), getattr(expected, name)
        _require(name == "type" or given == right, f"{name} is {given}, the events give {right}")
    state.round = now.number
    state.failures = expected.failures
    state.reference_round, state.reference_failures = expected.reference_round, expected.reference_failures
    state.epsilon = Fraction(expected.epsilon_next)
    state.open = None


def unsettled(now: Round) -> list[str]:
    """Failures that were diagnosed and not yet put down to a cause, in the order of their diagnosis."""
    return [
        failure_id
        for failure_id, diagnosis in now.diagnoses.items()
        if diagnosis.verdict in ("recurrence", "new_cause") and failure_id not in now.settled
    ]
