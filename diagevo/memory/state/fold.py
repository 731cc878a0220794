"""The fold: `apply(state, event) -> state`. No I/O and no clock; integers and fractions only.

Facts change the state; consequences change it too, and each is checked against what follows from the facts
(`decide.py`). An event that does not follow raises InconsistentError with its position.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, TypeVar, get_args, get_type_hints

from msgspec.structs import replace

from diagevo.equations.policy import built_in, next_epsilon
from diagevo.equations.states import CauseState, counted, reaches, reinstated, settled, withdrawn
from diagevo.errors import InconsistentError
from diagevo.memory.events import (
    Cause,
    CauseAdded,
    CauseDismissed,
    CauseReinstated,
    CauseRenamed,
    CheckpointEvaluated,
    Event,
    FailureAssigned,
    FailureUnassigned,
    GroupIngested,
    Node,
    PhaseMeasured,
    RoundCommitted,
    RoundOpened,
    RoundsSuperseded,
    RunConfigured,
    StageAbandoned,
    StageCompleted,
    StageStarted,
    StepTrained,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.state import decide, effects
from diagevo.memory.state.effects import require, unsettled
from diagevo.memory.state.model import Began, MemoryState, OpenRound, Stage
from diagevo.memory.state.stored_config import read_today, settings_of
from diagevo.memory.state.vote_checks import judging, refuse_shapeless, refuse_unearned, refuse_ungrouped

STAGES = ("challenger", "candidates", "votes", "solver", "diagnosis")
"""The stages of our own loop, in order. Diagnosis may begin while the solver still trains."""


H = TypeVar("H", bound=Callable[..., None])


def handlers(*functions: H) -> dict[str, H]:
    """Functions by the tag of the event that they handle: `fact: Fact[RoundOpened]` handles "RoundOpened"."""
    return {event_of(function).__name__: function for function in functions}


def event_of(function: Callable[..., None]) -> type[Event]:
    """The event type that a function of the fold handles, from its annotation."""
    (event,) = get_args(get_type_hints(function)["fact"])
    return event


def apply(state: MemoryState, fact: Fact[Event]) -> MemoryState:
    """The state after one event; `state` itself is left as it was."""
    return advance(state.copy(), fact)


def advance(state: MemoryState, fact: Fact[Event]) -> MemoryState:
    """Change `state` by one event and return it: `apply` for a state that nobody else holds."""
    return fold(state, (fact,))


def fold(state: MemoryState, facts: Iterable[Fact[Event]]) -> MemoryState:
    """Change `state` by events in order and return it: one loop, because replays are long."""
    effect_of = IN_ROUND.get
    for fact in facts:
        # Two tables: what may happen within a round, and what between two. An event of the other one is
        # refused.
        now, effect = state.open, effect_of(fact.type)
        try:
            if now is None or effect is None:
                _between_rounds(state, fact)
            elif fact.round != now.number:
                raise InconsistentError(f"it says round {fact.round}, the open round is {now.number}")
            else:
                effect(state, now, fact)
        except _REFUSED as error:
            where = f"#{fact.position} {fact.type} {fact.event_id}"
            raise InconsistentError(f"{where}: {_why_refused(error)}") from error
        # Only after its effect: where an event is refused, these name the last one that was not.
        state.sequence = fact.sequence
        state.position = fact.position
    return state


_REFUSED = (InconsistentError, LookupError, ArithmeticError, ValueError, TypeError, AttributeError)
"""The errors of an event that does not follow: a log may contain anything, correctly hashed."""


def _why_refused(error: Exception) -> str:
    if isinstance(error, InconsistentError):
        return error.args[0]
    if isinstance(error, KeyError):
        return f"names {error}, which the run does not have"
    return f"cannot be: {str(error).splitlines()[0] if str(error) else type(error).__name__}"


def _between_rounds(state: MemoryState, fact: Fact[Event]) -> None:
    effect = BETWEEN_ROUNDS.get(fact.type)
    if state.config is None and fact.type != RunConfigured.__name__:
        raise InconsistentError("a run begins with its configuration")
    if effect is not None:
        effect(state, fact)
    elif fact.type in IN_ROUND:
        raise InconsistentError("no round is open")
    else:
        raise InconsistentError("this version does not know such an event")


def _measured(state: MemoryState, fact: Fact[CheckpointEvaluated]) -> None:
    """A measurement after any round that was opened, at any time: it changes nothing."""
    require(fact.round <= state.last_opened, f"round {fact.round} was never opened")


def _ingested(state: MemoryState, fact: Fact[GroupIngested]) -> None:
    """A group from another trainer's files, at any time: it waits for its round and changes nothing."""
    refuse_ungrouped(fact.event, state.config or {})


def _configured(state: MemoryState, fact: Fact[RunConfigured]) -> None:
    event = read_today(fact.event, state.run_id)
    require(event.number == state.configurations + 1, f"configuration {state.configurations + 1} comes next")
    refuse_shapeless(event)
    if state.open is not None:  # the diagnostician may change; the round's settings may not
        # What an open round was drawn with, and is judged by, must not change midway: replay could not
        # derive it.
        if (settings_of(event.config), event.embedder) != (state.settings, state.embedder):
            _between(state)
        state.config, state.configurations = event.config, event.number
        return
    state.config = event.config
    state.embedder = event.embedder
    state.configurations = event.number
    # Settings may have changed since the commit, and the next round is drawn under the new ones. None: a
    # policy of one's own is asked when the round opens.
    ours = next_epsilon(state.settings, state.failures, state.reference_failures)
    state.epsilon = state.epsilon if ours is None else ours


def _opened(state: MemoryState, fact: Fact[RoundOpened]) -> None:
    _between(state)
    event = fact.event
    require(fact.round == state.round + 1, f"round {state.round} is the last committed one")
    epsilon = _epsilon(event.epsilon)
    # The schedule is derived, not trusted: a log whose weights or ε were edited ends here.
    expected = decide.opening(state, event.seed, epsilon)
    given = [(w.cause_id, w.frequency) for w in event.weights]
    require(
        given == [(w.cause_id, w.frequency) for w in expected.weights], "its weights are not those committed"
    )
    require(
        (event.epsilon, event.failures, event.reference_failures, event.k)
        == (expected.epsilon, expected.failures, expected.reference_failures, expected.k),
        f"ε is {event.epsilon}, committed was {expected.epsilon}",
    )
    state.epsilon = epsilon
    # What a superseding must give back, as a fingerprint: the event carries the memory, and cannot invent
    # one.
    state.began = (*state.began, Began(fact.round, state.memory, len(state.votes)))
    # Copies: candidates are drawn for the causes as they stood at the opening, while failures of the round
    # already change them.
    state.open = OpenRound(
        fact.round,
        state.epsilon,
        event.seed,
        fact.sequence,
        state.causes.copy(),
        state.nodes.copy(),
        judging=judging(state.config or {}),
    )


def _superseded(state: MemoryState, fact: Fact[RoundsSuperseded]) -> None:
    event = fact.event
    last = state.last_opened
    require(fact.round == event.last == last, f"round {last} is the last one")
    began = next((one for one in state.began if one.round == event.first), None)
    if began is None:
        raise InconsistentError(f"round {event.first} was never opened, or is superseded already")
    restored = decide.restored(event)
    # A duplicate name would be lost in the dictionaries below, and pass the fingerprint.
    once = (len(event.causes), len(event.nodes)) == (len(restored.causes), len(restored.nodes))
    require(once, "it restores a cause or a node twice")
    require(
        restored.memory == began.memory, f"it does not restore the memory that round {event.first} began with"
    )
    state.causes, state.nodes = restored.causes, restored.nodes
    state.absorbed, state.refused = restored.absorbed, restored.refused
    state.failures = restored.failures
    state.reference_round, state.reference_failures = restored.reference_round, restored.reference_failures
    ours = next_epsilon(state.settings, state.failures, state.reference_failures)
    state.epsilon = restored.epsilon if ours is None else ours
    # A policy reads the votes of rounds that count: those of superseded rounds are dropped.
    state.votes = state.votes[: began.votes]
    state.began = tuple(one for one in state.began if one.round < event.first)
    state.superseded = (*state.superseded, (event.first, last))
    # Numbering continues: the groups are processed again as the rounds that follow, never under an old
    # number.
    state.round, state.open = last, None


def _renamed(state: MemoryState, fact: Fact[CauseRenamed]) -> None:
    _between(state)
    event = fact.event
    cause = state.causes[event.cause_id]
    require(event.number == len(state.renamed) + 1, f"renaming {len(state.renamed) + 1} comes next")
    require(event.before == cause.description, f"{event.cause_id} has another description")
    require(event.description != event.before, "it already has this description")
    require(bool(event.description.strip()), "the description is empty")
    state.causes[event.cause_id] = replace(cause, description=event.description)
    state.renamed = (*state.renamed, (event.cause_id, event.before))


def _dismissed(state: MemoryState, fact: Fact[CauseDismissed]) -> None:
    require(state.causes[fact.event.cause_id].state != "dismissed", "it is dismissed already")
    require(bool(fact.event.because.strip()), "it gives no reason")
    _set_state(state, fact, "dismissed")


def _reinstated(state: MemoryState, fact: Fact[CauseReinstated]) -> None:
    cause = state.causes[fact.event.cause_id]
    require(cause.state == "dismissed", f"{cause.cause_id} is not dismissed")
    _set_state(state, fact, reinstated(cause.frequency, cause.promotion is not None))


def _set_state(
    state: MemoryState, fact: Fact[CauseDismissed] | Fact[CauseReinstated], to: CauseState
) -> None:
    """A change of a cause by hand changes F, and with it ε, from the next round on; F₁ stays."""
    _between(state)
    event = fact.event
    require(event.number == state.dismissals + 1, f"dismissal {state.dismissals + 1} comes next")
    state.causes[event.cause_id] = replace(state.causes[event.cause_id], state=to)
    state.dismissals = event.number
    _recount(state)


def _recount(state: MemoryState) -> None:
    """F and ε of the next round, after changes by hand since the last commit; F₁ stays."""
    state.failures = state.current_failures
    ours = next_epsilon(state.settings, state.failures, state.reference_failures)
    state.epsilon = state.epsilon if ours is None else ours


def _cause_added(state: MemoryState, fact: Fact[CauseAdded]) -> None:
    _between(state)
    event = fact.event
    require(bool(event.description.strip()), "the description is empty")
    require(state.round > 0, "no round was played yet")
    if event.label is not None:
        require(event.node_id == f"n{state.next_node}", f"n{state.next_node} comes next")
        state.nodes[event.node_id] = Node(event.node_id, event.label, ())
        state.next_node += 1
    effects.add_cause(state, event, frequency=0, round=state.round)


def _assigned(state: MemoryState, fact: Fact[FailureAssigned]) -> None:
    cause = state.causes[fact.event.cause_id]
    if _moves(state, fact, cause):
        now, frequency = counted(cause.state, cause.frequency, 1)
        state.causes[cause.cause_id] = replace(cause, state=now, frequency=frequency)
    _recount(state)


def _unassigned(state: MemoryState, fact: Fact[FailureUnassigned]) -> None:
    cause = state.causes[fact.event.cause_id]
    if _moves(state, fact, cause):
        require(cause.frequency > 0, f"{cause.cause_id} has no failure")
        now, frequency = withdrawn(cause.state, cause.frequency, cause.promotion is not None)
        state.causes[cause.cause_id] = replace(cause, state=now, frequency=frequency)
    _recount(state)


def _moves(state: MemoryState, fact: Fact[FailureAssigned] | Fact[FailureUnassigned], cause: Cause) -> bool:
    """Whether f of the cause changes: a promotion closed the failures from before its round."""
    _between(state)
    event = fact.event
    require(event.number == state.assignments + 1, f"assignment {state.assignments + 1} comes next")
    require(bool(state.counted([event.failure.round])), f"round {event.failure.round} does not count")
    state.assignments = event.number
    return cause.promotion is None or event.failure.round >= state.promotions[cause.promotion]


def _epsilon(text: str) -> Fraction:
    """ε as recorded: a custom policy's answer is a fact, and only its bounds are checked here."""
    epsilon = Fraction(text)
    require(0 <= epsilon <= 1, f"ε is {text}")
    return epsilon


def _between(state: MemoryState) -> None:
    if state.open is not None:
        raise InconsistentError(f"round {state.open.number} is open")


def _stage_started(state: MemoryState, now: OpenRound, fact: Fact[StageStarted]) -> None:
    event = fact.event
    before = now.stages.get(event.stage)
    require(
        before is None or before.status == "abandoned", f"stage {event.stage} is {before and before.status}"
    )
    # Attempts are numbered without a gap, so that one cut out of the log is noticed.
    attempt = 1 if before is None else before.attempt + 1
    require(event.attempt == attempt, f"attempt {event.attempt} where {attempt} comes next")
    for name, stage in now.stages.items():
        # One at a time, except diagnosis, which runs alongside the solver's training.
        if stage.status == "running" and (event.stage, name) != ("diagnosis", "solver"):
            raise InconsistentError(f"stage {name} is under way")
    if event.stage in STAGES:
        # In order: a later stage's output was made from an earlier attempt of this one.
        late = [s for s in STAGES[STAGES.index(event.stage) + 1 :] if s in now.stages]
        require(not late, f"stage {late} began before it")
    now.stages[event.stage] = Stage("running", event.attempt)


def _running(now: OpenRound, event: StageCompleted | StageAbandoned | PhaseMeasured | StepTrained) -> Stage:
    stage = now.stages.get(event.stage)
    if stage is None or stage.status != "running" or stage.attempt != event.attempt:
        raise InconsistentError(f"attempt {event.attempt} of stage {event.stage} is not running")
    return stage


def _stage_completed(state: MemoryState, now: OpenRound, fact: Fact[StageCompleted]) -> None:
    event = fact.event
    _running(now, event)
    now.stages[event.stage] = Stage("completed", event.attempt, tuple(event.artifacts))


def _phase_measured(state: MemoryState, now: OpenRound, fact: Fact[PhaseMeasured]) -> None:
    """Of the running attempt; it changes nothing."""
    event = fact.event
    _running(now, event)
    require(event.reward_lowest <= event.reward_highest, "its lowest reward is above its highest")
    require(event.cut_off <= event.completions, "more completions were cut off than there were")


def _step_trained(state: MemoryState, now: OpenRound, fact: Fact[StepTrained]) -> None:
    """Of the running attempt; it changes nothing."""
    _running(now, fact.event)
    refuse_unearned(fact.event, state.config or {})


def _stage_abandoned(state: MemoryState, now: OpenRound, fact: Fact[StageAbandoned]) -> None:
    event = fact.event
    _running(now, event)
    now.stages[event.stage] = Stage("abandoned", event.attempt)
    # A restart at an earlier step than the last one repeats those steps, whoever saw them first.
    void = [f for f, o in now.failures.items() if o.stage == event.stage and o.step > event.after_step]
    for failure_id in void:
        del now.failures[failure_id]
        now.diagnoses.pop(failure_id, None)


def _committed(state: MemoryState, now: OpenRound, fact: Fact[RoundCommitted]) -> None:
    event = fact.event
    require(now.expected is None, f"the reactivation of {now.expected and now.expected[0]} is missing")
    require(not now.merging, "a merge that was decided is missing")
    waiting = unsettled(now)
    require(not waiting, f"{len(waiting)} diagnosed failures are not counted, first {waiting[:1]}")
    # Both ways: a promotion that was left out is as wrong as one that was invented.
    due = {cause_id for cause_id, tally in now.tallies.items() if reaches(tally, state.settings)}
    require(due == now.promoted, f"the votes promote {sorted(due)}, recorded are {sorted(now.promoted)}")
    for cause in state.causes.values():
        # State and f say the same (Mastered: f = 0), but for what somebody assigned.
        fits = cause.state == settled(cause.state, cause.frequency, cause.promotion is not None)
        require(fits, f"{cause.cause_id} is {cause.state} with f = {cause.frequency}")
    expected = decide.commitment(state, _epsilon(event.epsilon_next))
    for name in expected.__struct_fields__:
        given, right = getattr(event, name), getattr(expected, name)
        require(given == right, f"{name} is {given}, the events give {right}")
    state.round = now.number
    state.failures = expected.failures
    state.reference_round, state.reference_failures = expected.reference_round, expected.reference_failures
    state.epsilon = Fraction(expected.epsilon_next)
    # The built-in schedules ask for no votes, which would make a snapshot longer with every round.
    if built_in(state.settings) is None:
        state.votes = (*state.votes, now.tallies)
    state.open = None


IN_ROUND: dict[str, Callable[[MemoryState, OpenRound, Fact[Any]], None]] = handlers(
    _stage_started,
    _stage_completed,
    _stage_abandoned,
    _phase_measured,
    _step_trained,
    effects.scored,
    effects.promoted,
    effects.observed,
    effects.id_given,
    effects.diagnosed,
    effects.judged,
    effects.assigned,
    effects.node_created,
    effects.cause_created,
    effects.matched,
    effects.reactivated,
    effects.pair_judged,
    effects.merged,
    _committed,
)
"""What an event does while a round is open."""

BETWEEN_ROUNDS: dict[str, Callable[[MemoryState, Fact[Any]], None]] = handlers(
    _configured,
    _opened,
    _measured,
    _ingested,
    _renamed,
    _dismissed,
    _reinstated,
    _cause_added,
    _assigned,
    _unassigned,
    _superseded,
)
"""What an event does that belongs to no open round; some only while none is open."""
