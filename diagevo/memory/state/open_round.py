"""What a consumer asks of the open round, and what it may say of it: pure reads."""

from diagevo.errors import ConflictError, NotFoundError, OutOfOrderError
from diagevo.memory.events import (
    DuplicateJudged,
    FailureDiagnosed,
    FailureObserved,
    NodeAssigned,
    number_of,
)
from diagevo.memory.state.model import KnownCause, OpenRound, Stage


def stage_status(now: OpenRound, stage: str) -> Stage:
    """Of a stage; an abandoned one is not started."""
    found = now.stages.get(stage, Stage("not_started", 0))
    return Stage("not_started", found.attempt) if found.status == "abandoned" else found


def by_question(failure_id: str) -> tuple[int, ...]:
    """r3.q318.a5 → (3, 318, 5): by question number and sample."""
    return tuple(number_of(part) for part in failure_id.split("."))


def undiagnosed(now: OpenRound, again: bool) -> list[FailureObserved]:
    waiting = [
        f
        for f in now.failures
        if f not in now.diagnoses or (again and now.diagnoses[f].verdict == "unresolved")
    ]
    return [now.failures[f] for f in sorted(waiting, key=by_question)]


def refuse_other(now: OpenRound, failure: FailureObserved) -> None:
    """Raises ConflictError where the failure has another valid observation."""
    if now.failures.get(failure.failure_id, failure) != failure:
        raise ConflictError(
            f"{failure.failure_id} was already observed with other content",
            hint="abandon a stage before repeating it: abandon_stage(stage, after_step=...)",
        )


def supplied(now: OpenRound, question_id: str) -> tuple[KnownCause, ...]:
    """The causes that the question's writer was given, in their state as committed in the round before."""
    candidate = now.candidates.get(question_id)
    if candidate is None:
        raise NotFoundError(f"round {now.number} has no candidate {question_id}")
    shown = [c for c in (candidate.cause_id, candidate.stitched_cause_id) if c is not None]
    return tuple(KnownCause(c, now.causes[c].state, now.causes[c].description) for c in shown)


def check_settlement(
    now: OpenRound, failure_id: str, judged: DuplicateJudged | None, assigned: NodeAssigned | None
) -> FailureDiagnosed:
    """The diagnosis that these facts settle. Raises OutOfOrderError where they cannot."""
    diagnosis = now.diagnoses.get(failure_id)
    if diagnosis is None:
        raise OutOfOrderError(f"{failure_id} has no diagnosis")
    verdict = diagnosis.verdict
    if verdict not in ("recurrence", "new_cause"):
        raise OutOfOrderError(f"{failure_id} is {verdict}: there is no cause to count it under")
    if verdict == "recurrence" and (judged is not None or assigned is not None):
        raise OutOfOrderError(f"{failure_id} is a recurrence: nothing is left to judge")
    if verdict == "new_cause" and judged is None:
        raise OutOfOrderError(f"{failure_id} needs a judgement on duplicates")
    if judged is not None and judged.duplicate == (assigned is not None):
        raise OutOfOrderError(f"{failure_id}: a node is assigned exactly where the cause is no duplicate")
    for fact in (judged, assigned):
        if fact is not None and fact.failure_id != failure_id:
            raise OutOfOrderError(f"a fact about {fact.failure_id} cannot settle {failure_id}")
    return diagnosis
