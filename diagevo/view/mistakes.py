"""What the model kept getting wrong, in words: the causes of most failures, each with one of its failures."""

from collections import Counter
from dataclasses import dataclass

from diagevo.diagnosis.grouping import FailedResponse, parting
from diagevo.memory.events import CandidateScored, CauseCreated, CauseMatched, FailureObserved
from diagevo.memory.history import History
from diagevo.memory.log.artifacts import Artifacts

TOLD = 3
"""Causes."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A cause with its failures, and the last of them: where it parts from a response that agreed."""

    cause_id: str
    description: str
    state: str
    failures: int
    share: float
    """Of all failures that have a cause."""
    failure_id: str
    question: str
    wrote: str
    instead_of: str


def mistakes(history: History) -> list[Mistake]:
    """Of the rounds that count. Where the truth is known, a failure that was wrong is shown."""
    state = history.state(history.end)
    counted = set(state.counted(range(1, state.last_opened + 1)))
    questions: dict[str, str] = {}
    failures: dict[str, FailureObserved] = {}
    number: Counter[str] = Counter()
    shown: dict[str, str] = {}
    types = ["CandidateScored", "FailureObserved", "CauseCreated", "CauseMatched"]
    for payload in history.log.payloads(history.run_id, types):
        if payload.round not in counted:
            continue
        match payload.event:
            case CandidateScored() as scored:
                questions[scored.question_id] = scored.question
            case FailureObserved() as failure:
                failures[failure.failure_id] = failure
            case (
                CauseCreated(failure_id=name, cause_id=cause) | CauseMatched(failure_id=name, cause_id=cause)
            ):
                number[cause] += 1
                if failures[name].right is not True or cause not in shown:
                    shown[cause] = name
            case _:
                pass
    most = [cause for cause, _ in number.most_common(TOLD)]
    return [_told(history, cause, failures[shown[cause]], questions, number) for cause in most]


def _told(
    history: History, cause: str, failure: FailureObserved, questions: dict[str, str], number: Counter[str]
) -> Mistake:
    digests = questions[failure.question_id], failure.reference, failure.trajectory
    texts = Artifacts(history.database).get_many(digests)
    question, passed, failed = (texts[digest] for digest in digests)
    known = history.state(history.end).causes[cause]
    where = parting(FailedResponse(question, passed, failed))
    return Mistake(
        cause_id=cause,
        description=known.description,
        state=known.state.capitalize(),
        failures=number[cause],
        share=number[cause] / number.total(),
        failure_id=failure.failure_id,
        question=question,
        wrote=where.failed,
        instead_of=where.passed,
    )
