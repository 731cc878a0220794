"""The effect of each event of an open round on the memory: votes, failures, causes and nodes. Each function
applies one event of its type to the state, and refuses one that does not follow from those before it with
InconsistentError, or KeyError for a name that the run does not have (`fold.advance` says where). The stages
and the round's bounds are in `fold.py`.
"""

from msgspec.structs import replace

from diagevo.equations.states import counted, part_in_schedule, tallied
from diagevo.errors import InconsistentError
from diagevo.memory.events import (
    CandidateScored,
    Cause,
    CauseAdded,
    CauseCreated,
    CauseMatched,
    CausePromoted,
    CauseReactivated,
    DuplicateJudged,
    FailureDiagnosed,
    FailureObserved,
    IdGiven,
    Node,
    NodeAssigned,
    NodeCreated,
    NodePairJudged,
    NodesMerged,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.state import decide
from diagevo.memory.state.model import MemoryState, OpenRound
from diagevo.memory.state.vote_checks import refuse_unfounded, refuse_unlisted, refuse_unscreened


def require(condition: bool, message: str) -> None:
    """For rare checks: the message is built either way."""
    if not condition:
        raise InconsistentError(message)


def scored(state: MemoryState, now: OpenRound, fact: Fact[CandidateScored]) -> None:
    event = fact.event
    question_id, cause_id, verdict = event.question_id, event.cause_id, event.verdict
    # Promotions are by a round's votes as a whole: a candidate that came later would change a decided one.
    if now.promoted or now.failures or "solver" in now.stages:
        raise InconsistentError("all candidates are scored before promotions and the solver's stage")
    if question_id in now.candidates:
        raise InconsistentError(f"{question_id} was scored before")
    # By the filter in force when the round opened: a change of settings judges from the next round on.
    refuse_unfounded(event, now.judging)
    if event.drawn_round is not None and not 1 <= event.drawn_round < now.number:
        raise InconsistentError(f"round {event.drawn_round}, which it was drawn for, is not an earlier one")
    stitched = event.stitched_cause_id
    now.candidates[question_id] = event
    if (event.mode == "stitched") != (stitched is not None):
        raise InconsistentError("a stitched question has a partner, and nothing else has")
    if cause_id is None:
        require(event.mode == "free", "a targeted question without a cause")
        return
    if event.mode == "free":
        raise InconsistentError("a free question with a cause")
    # As committed, not as it is now: the schedule that drew it knew only that.
    if part_in_schedule(now.causes[cause_id].state) != "target":
        raise InconsistentError(f"its target {cause_id} was not Active when the round began")
    if stitched is not None and part_in_schedule(now.causes[stitched].state) != "partner":
        raise InconsistentError("its partner was not Mastered")
    # Only questions that were answered count towards the score that promotes a cause.
    if verdict != "invalid":
        now.tallies[cause_id] = tallied(now.tallies.get(cause_id), event.first, event.responses)


def promoted(state: MemoryState, now: OpenRound, fact: Fact[CausePromoted]) -> None:
    event = fact.event
    # Counted again from the votes: a consequence is never taken from the log as it stands.
    expected = decide.promotion(state, event.cause_id)
    require(expected is not None, f"the votes do not promote {event.cause_id}")
    assert expected is not None
    require(
        (event.questions, event.consistency, event.threshold, event.closed_frequency)
        == (expected.questions, expected.consistency, expected.threshold, expected.closed_frequency),
        f"the votes give {expected.consistency} over {expected.questions} questions",
    )
    require(not now.failures and "solver" not in now.stages, "promotions come before the solver's stage")
    cause = state.causes[event.cause_id]
    # f begins anew, and the promotion's id stays, for the reactivation that may undo it.
    state.causes[event.cause_id] = replace(cause, state="mastered", frequency=0, promotion=fact.event_id)
    state.promotions[fact.event_id] = now.number
    now.promoted.add(event.cause_id)


def observed(state: MemoryState, now: OpenRound, fact: Fact[FailureObserved]) -> None:
    event = fact.event
    failure_id, question_id = event.failure_id, event.question_id
    candidate = now.candidates[question_id]
    # Without a response that passed there is no majority to fail against: another trainer's known answer
    # stands in, and is the label or nothing.
    if event.against == "answer":
        if candidate.votes_are != "rewards" or candidate.first or candidate.label is None:
            raise InconsistentError(f"{question_id} has a response that passed, or no known answer")
        if event.reference != digest_of(candidate.label):
            raise InconsistentError(f"it is compared with another answer than that of {question_id}")
    elif event.against == "nothing":
        if candidate.votes_are != "rewards" or candidate.first or event.reference != digest_of(""):
            raise InconsistentError(f"{question_id} has a response that passed")
    elif candidate.verdict != "kept":
        raise InconsistentError(f"{question_id} was not kept")
    elif candidate.reference is not None and event.reference != candidate.reference:
        raise InconsistentError(f"it is compared with another response than the reference of {question_id}")
    if failure_id.rpartition(".")[0] != question_id:
        raise InconsistentError(f"{failure_id} is the name of another question's failure")
    if failure_id in now.failures:
        raise InconsistentError(f"{failure_id} was observed before and is not void")
    stage = now.stages.get(event.stage)
    if stage is None:
        if event.attempt != 1 or "solver" in now.stages:
            raise InconsistentError(f"stage {event.stage} has no attempt {event.attempt}")
    elif stage.status != "running" or stage.attempt != event.attempt:
        raise InconsistentError(f"attempt {event.attempt} of stage {event.stage} is not running")
    now.failures[failure_id] = event


def id_given(state: MemoryState, now: OpenRound, fact: Fact[IdGiven]) -> None:
    named, own_id = fact.event.named, fact.event.own_id
    ids = now.questions_named if named in now.candidates else now.failures_named
    require(named in now.candidates or named in now.failures, f"there is no {named}")
    require(own_id not in ids, f"{own_id} is the id of another one")
    require(named not in now.own_ids and bool(own_id.strip()), f"{named} has an id, or is given none")
    now.own_ids[named], ids[own_id] = own_id, named


def diagnosed(state: MemoryState, now: OpenRound, fact: Fact[FailureDiagnosed]) -> None:
    event = fact.event
    failure_id, cause_id, verdict = event.failure_id, event.cause_id, event.verdict
    observation = now.failures[failure_id]
    if observation.attempt != event.attempt:
        raise InconsistentError(f"attempt {event.attempt} of {failure_id} is void")
    # Only what came to no verdict is asked again: a second answer would replace one that may be counted.
    before = now.diagnoses.get(failure_id)
    if before is not None and before.verdict != "unresolved":
        raise InconsistentError(f"{failure_id} was diagnosed before")
    candidate = now.candidates[observation.question_id]
    for shown in event.supplied:
        shown_id = shown.cause_id
        # Recurrence means: the cause that the question was written to provoke. Another one goes through the
        # search for duplicates, which compares it with all.
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
    if event.asked != (1 if before is None else before.asked + 1):
        raise InconsistentError(
            f"{failure_id} was asked {0 if before is None else before.asked} times before"
        )
    now.diagnoses[failure_id] = event


def _pending(now: OpenRound, failure_id: str, verdict: str) -> FailureDiagnosed:
    """The diagnosis of a failure that is about to be settled."""
    # A match of a Mastered cause and its reactivation are two events: nothing may come between them, or a
    # kill there would leave f without the state.
    if now.expected is not None:
        raise InconsistentError(f"the reactivation of {now.expected[0]} must come first")
    solver = now.stages.get("solver")
    # An attempt that is still running may be abandoned, and its failures with it.
    if solver is not None and solver.status != "completed":
        raise InconsistentError("failures are counted when the solver's stage is complete")
    diagnosis = now.diagnoses[failure_id]
    if failure_id in now.settled:
        raise InconsistentError(f"{failure_id} was counted before")
    if diagnosis.verdict != verdict:
        raise InconsistentError(f"{failure_id} is a {diagnosis.verdict}")
    return diagnosis


def _settled(now: OpenRound, failure_id: str, cause_id: str) -> None:
    """The failure is counted, and the judgements on it are no longer needed."""
    now.settled[failure_id] = cause_id
    now.judged.pop(failure_id, None)
    now.assigned.pop(failure_id, None)


def judged(state: MemoryState, now: OpenRound, fact: Fact[DuplicateJudged]) -> None:
    event = fact.event
    failure_id, duplicate, cause_id = event.failure_id, event.duplicate, event.cause_id
    _pending(now, failure_id, "new_cause")
    if duplicate != (cause_id is not None):
        raise InconsistentError("a duplicate names its cause, and nothing else does")
    if failure_id in now.judged:
        raise InconsistentError("it was judged before")
    # θ_dup decides which causes are compared; a log that shows a model others would follow another rule.
    refuse_unscreened(event, state.config or {})
    now.judged[failure_id] = event


def assigned(state: MemoryState, now: OpenRound, fact: Fact[NodeAssigned]) -> None:
    event = fact.event
    _pending(now, event.failure_id, "new_cause")
    require(not now.judged[event.failure_id].duplicate, "a duplicate needs no node")
    require(
        (event.node_id is None) != (event.new_label is None), "a node, or the label of a new one, is needed"
    )
    require(event.node_id is None or event.node_id in state.nodes, f"there is no node {event.node_id}")
    now.assigned[event.failure_id] = event


def node_created(state: MemoryState, now: OpenRound, fact: Fact[NodeCreated]) -> None:
    event = fact.event
    require(event.node_id == f"n{state.next_node}", f"n{state.next_node} comes next")
    state.nodes[event.node_id] = Node(event.node_id, event.label, ())
    state.next_node += 1


def cause_created(state: MemoryState, now: OpenRound, fact: Fact[CauseCreated]) -> None:
    event = fact.event
    diagnosis = _pending(now, event.failure_id, "new_cause")
    assigned = now.assigned[event.failure_id]
    node = state.nodes[event.node_id]
    require(event.description == diagnosis.description, "its description is not the diagnosed one")
    if assigned.node_id is None:
        require(not node.causes and node.label == assigned.new_label, "it was assigned to a new node")
    else:
        require(assigned.node_id == event.node_id, f"it was assigned to {assigned.node_id}")
    add_cause(state, event, frequency=1, round=now.number)
    now.created.add(event.cause_id)
    _settled(now, event.failure_id, event.cause_id)


def add_cause(state: MemoryState, event: CauseCreated | CauseAdded, *, frequency: int, round: int) -> None:
    """The next cause, Active and under its node."""
    cause = Cause(
        cause_id=event.cause_id,
        description=event.description,
        node_id=event.node_id,
        state="active",
        frequency=frequency,
        created_round=round,
        failure_id=event.failure_id,
        promotion=None,
    )
    node = state.nodes[cause.node_id]
    require(cause.cause_id == f"c{state.next_cause}", f"c{state.next_cause} comes next")
    state.causes[cause.cause_id] = cause
    state.nodes[cause.node_id] = replace(node, causes=(*node.causes, cause.cause_id))
    state.next_cause += 1


def matched(state: MemoryState, now: OpenRound, fact: Fact[CauseMatched]) -> None:
    event = fact.event
    failure_id, cause_id = event.failure_id, event.cause_id
    named: str | None
    similarity: float | None
    if event.via == "recurrence":
        named, similarity = _pending(now, failure_id, "recurrence").cause_id, None
    else:
        _pending(now, failure_id, "new_cause")
        judged = now.judged[failure_id]
        named, similarity = judged.cause_id, decide.similarity_of(judged)
    if named != cause_id:
        raise InconsistentError(f"{failure_id} was assigned to {named}, not to {cause_id}")
    if event.similarity != similarity:
        raise InconsistentError(f"its similarity is {event.similarity}, judged was {similarity}")
    cause = state.causes[cause_id]
    # Equation 8 for one failure. Where it also changes the state, f changes with the reactivation.
    after, frequency = counted(cause.state, cause.frequency, 1)
    if after == cause.state:
        state.causes[cause_id] = replace(cause, frequency=frequency)
    else:
        now.expected = cause_id, failure_id
    _settled(now, failure_id, cause_id)


def reactivated(state: MemoryState, now: OpenRound, fact: Fact[CauseReactivated]) -> None:
    event = fact.event
    cause = state.causes[event.cause_id]
    require(
        now.expected == (event.cause_id, event.failure_id),
        f"{event.failure_id} was not the failure that was matched to a Mastered {event.cause_id}",
    )
    require(event.promotion == cause.promotion, "it undoes another promotion than the cause's last")
    active, frequency = counted(cause.state, cause.frequency, 1)
    state.causes[event.cause_id] = replace(cause, state=active, frequency=frequency)
    now.expected = None
    now.reactivated.add(event.cause_id)


def pair_judged(state: MemoryState, now: OpenRound, fact: Fact[NodePairJudged]) -> None:
    event = fact.event
    a, b = state.pair(*event.nodes)
    require(a != b, "a node cannot be merged with itself")
    require(not unsettled(now), "diagnosed failures are not counted yet")
    require(event.merge or event.label is None, "two skills have no label in common")
    refuse_unlisted(event, state.config or {})
    if event.merge:
        now.merging[f"{a}.{b}"] = event.label
    else:
        # With the contents that were judged: as soon as either node changes, the pair may be asked about
        # again.
        state.refused[f"{a}.{b}"] = state.fingerprint(a, b)


def merged(state: MemoryState, now: OpenRound, fact: Fact[NodesMerged]) -> None:
    event = fact.event
    survivor, absorbed = state.nodes[event.survivor], state.nodes[event.absorbed]
    require(survivor.number < absorbed.number, "the lower id survives")
    pair = f"{event.survivor}.{event.absorbed}"
    if pair not in now.merging:
        raise InconsistentError("the pair was not judged to be one")
    label = now.merging.pop(pair)
    require(event.label == (label or survivor.label), "its label is not the judged one")
    # By number, so that the state's hash does not depend on the order of merges.
    members = sorted((*survivor.causes, *absorbed.causes), key=lambda c: state.causes[c].number)
    for cause_id in absorbed.causes:
        state.causes[cause_id] = replace(state.causes[cause_id], node_id=event.survivor)
    state.nodes[event.survivor] = replace(survivor, label=event.label, causes=tuple(members))
    del state.nodes[event.absorbed]
    # Old names still resolve: a reference to an absorbed node finds its survivor.
    state.absorbed[event.absorbed] = (event.survivor, absorbed.label)


def unsettled(now: OpenRound) -> list[str]:
    """Failures diagnosed but not yet assigned to a cause, in the order of their diagnosis."""
    return [
        failure_id
        for failure_id, diagnosis in now.diagnoses.items()
        if diagnosis.verdict in ("recurrence", "new_cause") and failure_id not in now.settled
    ]
