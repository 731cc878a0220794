"""Causes without a language model: the failures of an ingested run, grouped by likeness."""

from collections.abc import Sequence
from typing import Self

from diagevo.diagnosis.diagnostician import (
    DuplicateJudgement,
    Extraction,
    FailurePair,
    KnownCause,
    NodeAssignment,
    NodeCandidate,
    NodeContents,
    PairJudgement,
)
from diagevo.diagnosis.embedder import Embedder
from diagevo.diagnosis.grouping import FailedResponse, group
from diagevo.errors import NotFoundError
from diagevo.ingest.rounds import Rounds
from diagevo.memory.events import CandidateScored, CauseCreated, CauseMatched, FailureObserved, GroupIngested
from diagevo.memory.memory import Memory

_Digests = tuple[str, str, str]
"""Of the question, the response that passed and the one that failed."""


class LocalDiagnostician:
    """Names the group of a failure. One that is like no other is a slip: a single failure is no pattern."""

    name = "local"
    revision = "1"
    workers = 1

    def __init__(self, groups: dict[FailedResponse, tuple[str, str]]) -> None:
        """`groups`: by failure the description of its cause, and the label of its node."""
        self._groups = groups
        self._labels = dict(groups.values())

    @classmethod
    def of(cls, memory: Memory, embedder: Embedder | None = None) -> Self:
        """Group what waits in a run, beside what was diagnosed before; `embedder`: of questions, else TF-IDF.

        Raises:
            MissingDependencyError: The extra `local` is not installed.
            NotFoundError: No failure that waits is like another one.
        """
        done, waiting = _diagnosed(memory), _waiting(memory)
        every = list(dict.fromkeys([*done, *waiting]))
        texts = memory.artifacts.get_many([digest for digests in every for digest in digests])
        failures = [FailedResponse(*(texts[digest] for digest in digests)) for digests in every]
        known = {place: done[digests] for place, digests in enumerate(every) if digests in done}
        found = group(failures, known, embedder)
        named = zip(failures, found, strict=True)
        if waiting and not any(each is not None for each in found):
            raise NotFoundError(
                f"no two of the {len(waiting)} failures of run {memory.run_id} are alike",
                hint=f"ask a language model: diagevo diagnose --run {memory.run_id} --model M --base-url URL",
            )
        return cls({failure: each for failure, each in named if each is not None})

    def extract(self, pair: FailurePair) -> Extraction:
        found = self._groups.get(FailedResponse(pair.question, pair.agreeing, pair.disagreeing))
        if found is None:
            return Extraction("slip")
        same = next((cause for cause in pair.known if cause.description == found[0]), None)
        if same is not None:
            return Extraction("recurrence", cause_id=same.cause_id)
        return Extraction("new_cause", description=found[0])

    def judge_duplicate(self, description: str, candidates: Sequence[KnownCause]) -> DuplicateJudgement:
        same = next((cause for cause in candidates if cause.description == description), None)
        return DuplicateJudgement(same is not None, None if same is None else same.cause_id)

    def assign_node(self, description: str, shortlist: Sequence[NodeCandidate]) -> NodeAssignment:
        label = self._labels[description]
        node = next((node for node in shortlist if node.label == label), None)
        return NodeAssignment(new_label=label) if node is None else NodeAssignment(node_id=node.node_id)

    def judge_pair(self, a: NodeContents, b: NodeContents) -> PairJudgement:
        return PairJudgement(merge=a.label == b.label, label=a.label if a.label == b.label else None)


def _diagnosed(memory: Memory) -> dict[_Digests, str]:
    """Failures that have a cause which counts, with its description."""
    state = memory.state
    counted = set(state.counted())
    questions: dict[str, str] = {}
    observed: dict[str, FailureObserved] = {}
    found: dict[_Digests, str] = {}
    types = [CandidateScored, FailureObserved, CauseCreated, CauseMatched]
    for fact in memory.log.chosen(memory.run_id, types):
        if fact.round not in counted:
            continue
        match fact.event:
            case CandidateScored() as scored:
                questions[scored.question_id] = scored.question
            case FailureObserved() as failure:
                observed[failure.failure_id] = failure
            case (
                CauseCreated(failure_id=name, cause_id=cause) | CauseMatched(failure_id=name, cause_id=cause)
            ):
                failure = observed[name]
                if (counts := state.causes.get(cause)) is not None and failure.against == "response":
                    key = questions[failure.question_id], failure.reference, failure.trajectory
                    found[key] = counts.description
    return found


def _waiting(memory: Memory) -> list[_Digests]:
    """Failures of the open round, and of the groups behind it."""
    found = [
        (memory.question(failure.question_id).question, failure.reference, failure.trajectory)
        for failure in (memory.undiagnosed() if memory.state.open is not None else [])
    ]
    for _, waiting in Rounds(memory).waiting():
        found += _failed(waiting)
    return found


def _failed(group: GroupIngested) -> list[_Digests]:
    if group.reference is None:
        return []
    return [(group.question, group.reference, failed.trajectory) for failed in group.failed]
