"""The history of one failure: observed, diagnosed, judged, assigned, and the cause it was counted under;
and of one question: how it was drawn, voted on and filtered, and what failed on it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast

from diagevo.equations.filter import reason, reason_of_rewards
from diagevo.equations.settings import Filter
from diagevo.errors import NotFoundError
from diagevo.memory.events import (
    CandidateScored,
    CandidateVerdict,
    CauseCreated,
    CauseMatched,
    DuplicateJudged,
    Event,
    FailureAssigned,
    FailureDiagnosed,
    FailureObserved,
    FailureUnassigned,
    IdGiven,
    LabelSource,
    Mode,
    ModelCall,
    NodeAssigned,
    RoundOpened,
    SimilarCause,
    SimilarNode,
    SuppliedCause,
    Votes,
    WrittenPair,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import Recorded
from diagevo.memory.history import AsOf, E, History, expect, fact_of
from diagevo.memory.read.asking import filled
from diagevo.memory.read.opened_rounds import round_played
from diagevo.memory.state.assignments import moves
from diagevo.memory.state.vote_checks import VOTES_SAY
from diagevo.memory.stories.references import Reference, observation

CONTRADICTED = {
    "no_such_step": "the step that it names is not in the response",
    "step_passed": "the response that passed has the step that it names",
    "step_holds": "the step that it names holds when it is computed",
}
"""Flags of a model's cause that the computation contradicts."""


@dataclass(frozen=True, slots=True)
class ModelExchange:
    """One request to a model, with its texts if requested and kept."""

    purpose: str
    model: str
    tries: int
    input_tokens: int
    output_tokens: int
    request: str | None
    reply: str | None


@dataclass(frozen=True, slots=True)
class Texts:
    """The compared texts: loaded only if the full story is requested."""

    question: str | None
    reference: str | None
    """For a cause found without a model, the nearest response that passed, if one is shown."""
    trajectory: str | None
    calls: tuple[ModelExchange, ...]


@dataclass(frozen=True, slots=True)
class AssignedCause:
    """A cause that somebody assigned a failure to."""

    position: int
    cause_id: str | None
    """None: it was taken out of its cause."""
    by: str
    at: str
    """When, UTC."""
    note: str | None
    undo: bool


@dataclass(frozen=True, slots=True)
class FailureStory:
    """The chain of evidence of one failure. `positions` are those of the events it was read from, by type."""

    failure_id: str
    own_id: str | None
    """Its trainer's own id."""
    question_id: str
    round: int
    mode: Mode | None
    target: str | None
    stitched: str | None
    votes_are: str
    """answers, or a trainer's rewards."""
    label: str | None
    label_true: bool | None
    """Whether the label is the true answer, if the truth is known."""
    truth: str | None
    against: str
    """What it is held against: a response; where none passed, one to a prompt near to it, the known answer,
    or nothing."""
    right: bool | None
    """Whether the failed trajectory gives the true answer; None where that was not recorded."""
    question_verdict: CandidateVerdict | None
    stage: str
    attempt: int
    step: int
    void: bool
    """Observed after the step from which its attempt was repeated: never counted."""
    supplied: tuple[SuppliedCause, ...]
    verdict: str | None
    """recurrence, new_cause, slip, unresolved; None while it is not diagnosed."""
    chosen: str | None
    """The supplied cause that a recurrence names."""
    description: str | None
    flags: tuple[str, ...]
    candidates: tuple[SimilarCause, ...]
    nearest: SimilarCause | None
    duplicate: bool | None
    judged: bool
    """Whether a stored cause was near enough to ask the diagnostician about duplicates."""
    shortlist: tuple[SimilarNode, ...]
    node_id: str | None
    new_label: str | None
    outcome: str | None
    """recurrence, deduplication, created: how it was counted; None if it was not."""
    cause_id: str | None
    similarity: float | None
    theta_dup: float
    """In force in its round: above this cosine the diagnostician was asked about duplicates."""
    positions: dict[str, int]
    texts: Texts | None = None
    diagnosed: str | None = None
    """The cause that its round counted it under."""
    moves: tuple[AssignedCause, ...] = ()
    """Later assignments, in order."""
    local: bool = False
    """Whether it was diagnosed without a model: by computation, and by contrast with passes."""
    pair: WrittenPair | None = None
    """The place that its cause is about, beside a response that passed."""
    feedback: str | None = None
    """What the files say of it: a judge's rationale, a test log."""

    @property
    def contradicted(self) -> str | None:
        """The evidence against the cause that a model named."""
        return next((CONTRADICTED[flag] for flag in self.flags if flag in CONTRADICTED), None)


def failure_story(history: History, failure: Reference, as_of: AsOf, *, full: bool = False) -> FailureStory:
    """The story of a failure by its id. Raises NotFoundError if it was not observed by then."""
    seen = observation(history, failure, as_of)
    if seen is None:
        raise NotFoundError(
            f"there is no failure {failure.id} in run {history.run_id}",
            hint=f"see those of a round: diagevo memory log --type FailureObserved --run {history.run_id}",
        )
    observed = seen.event
    found: dict[str, Fact[Event]] = {"FailureObserved": seen}
    asked = 1
    while (
        diagnosis := history.find(
            FailureDiagnosed, failure.round, f"{failure.id}.{observed.attempt}.{asked}", as_of
        )
    ) is not None:
        found["FailureDiagnosed"] = diagnosis
        asked += 1
    for kind, key in (
        (CandidateScored, observed.question_id),
        (DuplicateJudged, failure.id),
        (NodeAssigned, failure.id),
        (CauseMatched, failure.id),
    ):
        event = history.find(kind, failure.round, key, as_of)
        if event is not None:
            found[kind.__name__] = event
    if "NodeAssigned" in found and (created := _created(history, found["NodeAssigned"], failure.id)):
        found["CauseCreated"] = created
    return _with_moves(history, _story(history, found, full), as_of)


def _with_moves(history: History, story: FailureStory, as_of: AsOf) -> FailureStory:
    """With the assignments made by then, and the resulting cause."""
    own = [
        fact
        for fact in moves(history.log, history.run_id, as_of.position)
        if fact.event.failure.failure_id == story.failure_id
    ]
    rows = history.log.by_ids(history.run_id, [fact.event_id for fact in own])
    found: list[AssignedCause] = []
    for fact in own:
        at, event = rows[fact.event_id].recorded_at, fact.event
        match event:
            case FailureAssigned(cause_id=cause, by=by, note=note, undo=undo):
                if found and found[-1].cause_id is None:
                    found.pop()  # a move between causes is one step
                found.append(AssignedCause(fact.position, cause, by, at, note, undo))
            case FailureUnassigned(by=by):
                found.append(AssignedCause(fact.position, None, by, at, None, False))
    if not found:
        return story
    return replace(story, cause_id=found[-1].cause_id, moves=tuple(found))


def counted_under(
    history: History, cause: str, round: int, *, newest_first: bool = False, limit: int | None = None
) -> Iterator[Fact[CauseCreated | CauseMatched]]:
    """What a round counted under a cause, in order or the last first. Only that round's events are looked
    through, of a cause that other rounds count by the ten thousand."""
    opened, following = (history.find(RoundOpened, number, "") for number in (round, round + 1))
    for recorded in history.log.read(
        history.run_id,
        types=[CauseCreated.__name__, CauseMatched.__name__],
        rounds=(round, round),
        cause_id=cause,
        after=0 if opened is None else opened.position,
        until=None if following is None else following.position,
        newest_first=newest_first,
        limit=limit,
    ):
        yield cast("Fact[CauseCreated | CauseMatched]", fact_of(recorded, Event))


def contradicted_causes(history: History) -> dict[str, str]:
    """Of causes that a model named and that what was computed contradicts in half of their failures or more,
    by id, how many, in words."""
    flagged: dict[str, str] = {}
    gone = history.superseded()
    for fact in history.events(FailureDiagnosed):
        why = next((CONTRADICTED[flag] for flag in fact.event.flags if flag in CONTRADICTED), None)
        if why is not None and fact.round not in gone:
            flagged[fact.event.failure_id] = why
    if not flagged:
        return {}
    every, against = Counter[str](), dict[str, Counter[str]]()
    for fact in history.events(CauseCreated, CauseMatched):
        if fact.round not in gone:
            every[fact.event.cause_id] += 1
            if (why := flagged.get(fact.event.failure_id)) is not None:
                against.setdefault(fact.event.cause_id, Counter())[why] += 1
    return {
        cause: f"CONTRADICTED in {of.total():,} of {every[cause]:,}: {of.most_common(1)[0][0]}"
        for cause, of in against.items()
        if 2 * of.total() >= every[cause]
    }


def stories_of(
    history: History, consequences: Sequence[Fact[Event]], *, full: bool = False
) -> tuple[FailureStory, ...]:
    """The story behind each CauseMatched or CauseCreated: a walk along its causation to where it began."""
    return tuple(_story_of(history, chain, full) for chain in history.chains(consequences))


def _story_of(history: History, chain: Sequence[Recorded], full: bool) -> FailureStory:
    found: dict[str, Fact[Event]] = {}
    for link in chain:
        found.setdefault(link.type, fact_of(link, Event))
    if "CandidateScored" not in found:
        observed = found["FailureObserved"].event
        assert isinstance(observed, FailureObserved)
        scored = history.find(CandidateScored, chain[0].round, observed.question_id)
        if scored is not None:
            found["CandidateScored"] = scored
    return _story(history, found, full)


def _created(history: History, assigned: Fact[Event], failure_id: str) -> Fact[Event] | None:
    """The cause that a failure created: what follows from its assignment, directly or through a new node."""
    waiting = [assigned.event_id]
    while waiting:
        for recorded in history.log.read(history.run_id, causation_id=waiting.pop()):
            fact = fact_of(recorded, Event)
            if isinstance(fact.event, CauseCreated) and fact.event.failure_id == failure_id:
                return fact
            waiting.append(recorded.event_id)
    return None


def _story(history: History, found: dict[str, Fact[Event]], full: bool) -> FailureStory:
    def event(kind: type[E]) -> E | None:
        fact = found.get(kind.__name__)
        return None if fact is None else cast("E", fact.event)

    observed = event(FailureObserved)
    assert observed is not None
    scored, diagnosed = event(CandidateScored), event(FailureDiagnosed)
    judged, assigned = event(DuplicateJudged), event(NodeAssigned)
    matched, created = event(CauseMatched), event(CauseCreated)
    counted = matched or created
    return filled(
        FailureStory,
        observed,
        own_id=own_id_of(history, found["FailureObserved"].round, observed.failure_id),
        round=found["FailureObserved"].round,
        mode=scored.mode if scored else None,
        target=scored.cause_id if scored else None,
        stitched=scored.stitched_cause_id if scored else None,
        votes_are=scored.votes_are if scored else "answers",
        label=scored.label if scored else None,
        label_true=scored.label_true if scored else None,
        truth=scored.truth if scored else None,
        against=held_against(observed, diagnosed.pair if diagnosed else None),
        question_verdict=scored.verdict if scored else None,
        void=history.abandoned.void(found["FailureObserved"].round, observed),
        supplied=tuple(diagnosed.supplied) if diagnosed else (),
        verdict=diagnosed.verdict if diagnosed else None,
        chosen=diagnosed.cause_id if diagnosed else None,
        description=diagnosed.description if diagnosed else None,
        flags=tuple(diagnosed.flags) if diagnosed else (),
        candidates=tuple(judged.candidates) if judged else (),
        nearest=judged.nearest if judged else None,
        duplicate=judged.duplicate if judged else None,
        judged=judged is not None and bool(judged.candidates),
        shortlist=tuple(assigned.shortlist) if assigned else (),
        node_id=created.node_id if created else assigned.node_id if assigned else None,
        new_label=assigned.new_label if assigned else None,
        outcome=matched.via if matched else "created" if created else None,
        cause_id=counted.cause_id if counted else None,
        diagnosed=counted.cause_id if counted else None,
        similarity=matched.similarity if matched else None,
        theta_dup=history.in_force(found["FailureObserved"].position).theta_dup,
        positions={kind: fact.position for kind, fact in found.items()},
        texts=_texts(history, observed, scored, (diagnosed, judged, assigned)) if full else None,
        local=diagnosed is not None
        and diagnosed.call is None
        and scored is not None
        and scored.votes_are == "rewards",
        pair=diagnosed.pair if diagnosed else None,
        feedback=None if observed.feedback is None else history.text(observed.feedback),
        moves=(),
    )


def held_against(failure: FailureObserved, pair: WrittenPair | None) -> str:
    """A `response` to its prompt; where none passed one to a prompt that is `near`, the known `answer`, or
    `nothing`."""
    near = pair is not None and failure.against != "response" and pair.passed != failure.reference
    return "near" if near else failure.against


_CALLS = ("extraction (Prompt 1)", "deduplication (Prompt 2)", "node assignment (Prompt 3)")


def _texts(
    history: History,
    observed: FailureObserved,
    scored: CandidateScored | None,
    by_model: tuple[FailureDiagnosed | None, DuplicateJudged | None, NodeAssigned | None],
) -> Texts:
    pair = by_model[0].pair if by_model[0] else None
    calls = ((purpose, event.call) for purpose, event in zip(_CALLS, by_model, strict=True) if event)
    return Texts(
        question=history.text(scored.question) if scored else None,
        reference=history.text(pair.passed if pair else observed.reference),
        trajectory=history.text(observed.trajectory),
        calls=tuple(asked(history, purpose, call) for purpose, call in calls if call is not None),
    )


def asked(history: History, purpose: str, call: ModelCall) -> ModelExchange:
    """A request with its texts."""
    texts = {"request": history.text(call.request), "reply": history.text(call.reply)}
    return filled(ModelExchange, call, purpose=purpose, **texts)


INVALID: Mapping[str, str] = {
    "unreadable": "the completion has no readable question",
    "unanswered": "the challenger gave no answer of its own in a box, which round.boxed_answers asks for",
    "outside_world": "the world has no answer to it",
    "held_out": "the validation set has this question, and training must not see it",
    "too_long": "its prompt is longer than sampling.max_prompt_tokens",
    "banned": "its program has something that no program may have",
    "not_executable": "its program does not run to a value within its limits",
    "not_deterministic": "its program gives another value when it runs again",
    "near_duplicate": "it is too near to a question that stays",
}


@dataclass(frozen=True, slots=True)
class QuestionStory:
    """A scored candidate with the schedule that it was drawn from."""

    question_id: str
    own_id: str | None
    """Its trainer's own id."""
    round: int
    position: int
    opened: int
    """Position of the round's schedule."""
    mode: Mode
    epsilon: Fraction
    cause_id: str | None
    probability: Fraction | None
    """p of the cause that it aims at."""
    stitched_cause_id: str | None
    question: str | None
    responses: int
    votes: tuple[tuple[str, int], ...]
    label: str | None
    label_true: bool | None
    truth: str | None
    undecided: int
    """Pairs of its answers that count as different because comparing them reached no verdict."""
    p1: Fraction
    p2: Fraction
    verdict: CandidateVerdict
    reason: str
    failures: tuple[FailureStory, ...]
    votes_are: Votes
    drawn_round: int | None
    steered: bool
    """Whether the memory drew this trainer's prompts."""
    label_from: LabelSource
    shown: tuple[str, ...]
    """What the challenger was shown when it wrote the question."""


def question_story(
    history: History, question: Reference, as_of: AsOf, *, full: bool = False
) -> QuestionStory:
    """The story of a question that exists by then."""
    found = history.find(CandidateScored, question.round, question.id, as_of)
    assert found is not None
    event = found.event
    played = round_played(history, question.round)
    aimed = played.aimed(event.cause_id)
    failed = dict.fromkeys(
        failure.failure_id
        for r in history.log.read(history.run_id, causation_id=found.event_id, until=as_of.position)
        if r.type == "FailureObserved" and (failure := expect(r, FailureObserved))
    )
    responses = event.responses or 1  # an invalid question may have none
    p1, p2 = Fraction(event.first, responses), Fraction(event.second, responses)
    return filled(
        QuestionStory,
        event,
        question_id=question.id,
        own_id=own_id_of(history, question.round, question.id),
        round=question.round,
        position=found.position,
        opened=played.position,
        epsilon=played.epsilon,
        probability=None if aimed is None else aimed[1].p,
        question=history.text(event.question),
        votes=tuple(event.votes),
        p1=p1,
        p2=p2,
        reason=_reason(event, p1, p2, played.configured.filter),
        failures=tuple(failure_story(history, Reference("failure", f), as_of, full=full) for f in failed),
        steered=history.steered,
        shown=tuple(history.text(digest) or "" for digest in event.given),
    )


def own_id_of(history: History, round_: int, id_: str) -> str | None:
    """The trainer's own id of a question or failure; None if it uses ours."""
    found = history.find(IdGiven, round_, id_)
    return None if found is None else found.event.own_id


def _reason(event: CandidateScored, p1: Fraction, p2: Fraction, filter: Filter) -> str:
    """The inequality that decided in that round."""
    if event.verdict == "invalid":
        return INVALID.get(event.invalid_reason or "", "no question that may be used; why is not recorded")
    if event.votes_are == "rewards":
        return reason_of_rewards(event.first, event.responses)
    if event.label is None and event.label_from not in VOTES_SAY:
        return "no response gives the known answer"
    return reason(p1, p2, event.label is not None, filter)
