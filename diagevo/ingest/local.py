"""Causes without a language model: the four levels over an ingested run, recorded round by round.

Earlier records stay: a failure with a diagnosis keeps it, a cause is identified by its key, and an
interrupted round continues from its events.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from diagevo.diagnosis.cause_extraction import OnProgress, Progress, ShouldStop
from diagevo.diagnosis.diagnostician import Computed
from diagevo.diagnosis.levels.cause_levels import SAMPLED, SKILLS, Explained, Levels
from diagevo.diagnosis.levels.inputs import Failure, LocalCause, Prompt, Response
from diagevo.diagnosis.levels.step_location import nearest
from diagevo.errors import AGAIN, StoppedSafely
from diagevo.memory.events import (
    CandidateScored,
    CauseCreated,
    CauseMatched,
    DuplicateJudged,
    FailureDiagnosed,
    FailureObserved,
    GroupIngested,
    Mark,
    NodeAssigned,
    WrittenPair,
    WrongStep,
)
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.memory import Memory

T = TypeVar("T")
BATCH = 64
"""Groups whose texts are in memory, and failures that are recorded, at once."""
SHARED = 512
"""Responses cached with their features: about those of one round of a live training."""
REPEATED = 4
"""Maximum groups of one question to learn from, as one prompt."""
LONGEST = 400
"""Maximum characters of a piece of evidence."""


class LocalCauses:
    """Finds the causes of a run's failures, and records them in its open round."""

    name = "local"

    def __init__(self, memory: Memory, groups: Iterable[GroupIngested]) -> None:
        """`groups`: all valid groups of the run."""
        self._memory = memory
        self._response = lru_cache(SHARED)(Response)  # read once for learning, and again for explaining
        failing, passing = _sampled(groups)
        known = _known(memory)
        self._levels = Levels(map(self._joined, failing), map(self._joined, passing), known)

    def diagnose(
        self,
        groups: Mapping[str, GroupIngested],
        on_progress: OnProgress | None = None,
        should_stop: ShouldStop | None = None,
    ) -> None:
        """Diagnose undiagnosed failures of the open round and count them; `groups` by their questions' ids.
        Raises: StoppedSafely: `should_stop` returned True; what is recorded stays.
        """
        memory = self._memory
        waiting: dict[str, list[FailureObserved]] = {}
        for failure in memory.undiagnosed():
            waiting.setdefault(failure.question_id, []).append(failure)
        total, done = sum(map(len, waiting.values())), 0
        for block in _blocks(list(waiting), BATCH):
            _stop(should_stop, total - done)
            events: list[FailureDiagnosed] = []
            for question, prompt in zip(block, self._prompts([groups[each] for each in block]), strict=True):
                observed = {failure.failure_id: failure for failure in waiting[question]}
                for sample, found in zip(groups[question].failed, self._levels.of(prompt), strict=True):
                    if (failure := observed.get(f"{question}.a{sample.sample}")) is not None:
                        events.append(
                            _diagnosed(
                                failure, found, _pair(found, prompt, groups[question], memory.artifacts)
                            )
                        )
            memory.diagnosed(events)
            done += len(events)
            if on_progress is not None:
                on_progress(Progress("extraction", done, total))
        self._settle(memory.unsettled(), should_stop, on_progress)

    def explained(self, groups: Mapping[str, GroupIngested]) -> dict[str, tuple[Explained, Computed]]:
        """What is computed about each failure of these groups, by id, to be shown to a model."""
        found: dict[str, tuple[Explained, Computed]] = {}
        for (question, group), prompt in zip(
            groups.items(), self._prompts(list(groups.values())), strict=True
        ):
            of = dict(zip(map(id, prompt.passed), group.passed, strict=True))
            for sample, failure, known in zip(
                group.failed, prompt.failed, self._levels.of(prompt), strict=True
            ):
                sibling = nearest(failure.response, prompt.beside)
                name = f"{question}.a{sample.sample}"
                passed = None if sibling is None else of[id(sibling)]
                found[name] = known, _computed(known, passed, failure.response.feedback)
        return found

    def first_level(self, found: Mapping[str, Explained], should_stop: ShouldStop | None = None) -> None:
        """Diagnose and count the open round's undiagnosed failures that are not reasoning mistakes."""
        plain = [
            _diagnosed(failure, found[failure.failure_id])
            for failure in self._memory.undiagnosed()
            if failure.failure_id in found and is_plain(found[failure.failure_id])
        ]
        for block in _blocks(plain, BATCH):
            _stop(should_stop, len(plain))
            self._memory.diagnosed(block)
        own = [event for event in self._memory.unsettled() if event.level is not None]
        self._settle(own, should_stop)

    def _settle(
        self,
        unsettled: Sequence[FailureDiagnosed],
        should_stop: ShouldStop | None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Count each diagnosed failure under the cause with its key, which the first one creates."""
        memory, done = self._memory, 0
        causes = _causes(memory)
        for block in _blocks(unsettled, BATCH):
            _stop(should_stop, len(unsettled))
            with memory.atomic():
                for event in block:
                    name = event.failure_id
                    if event.verdict == "recurrence":
                        memory.settle(name)
                        continue
                    key = event.cause_key or event.description or ""
                    same = causes.get(key)
                    judged = DuplicateJudged(
                        failure_id=name,
                        candidates=[],
                        nearest=None,
                        duplicate=same is not None,
                        cause_id=same,
                    )
                    if same is not None:
                        memory.settle(name, judged=judged)
                        continue
                    label = SKILLS[event.level or 3]
                    node = next(
                        (each.node_id for each in memory.state.nodes.values() if each.label == label), None
                    )
                    causes[key] = f"c{memory.state.next_cause}"
                    memory.settle(
                        name,
                        judged=judged,
                        assigned=NodeAssigned(
                            failure_id=name,
                            shortlist=[],
                            node_id=node,
                            new_label=label if node is None else None,
                        ),
                    )
            done += len(block)
            if on_progress is not None:
                on_progress(Progress("settlement", done, len(unsettled)))

    def _joined(self, groups: Sequence[GroupIngested]) -> Prompt:
        """Groups of one question as one prompt."""
        parts = list(self._prompts(groups))
        return Prompt(
            parts[0].key,
            parts[0].question,
            parts[0].answer,
            [each for part in parts for each in part.passed],
            [each for part in parts for each in part.failed],
        )

    def _prompts(self, groups: Sequence[GroupIngested]) -> Iterator[Prompt]:
        """Their texts, one block at a time."""
        for block in _blocks(groups, BATCH):
            digests = [
                digest
                for group in block
                for digest in (
                    *(group.question, *group.passed),
                    *(each.trajectory for each in group.failed),
                    *(each.text for each in group.feedback),
                )
            ]
            texts = self._memory.artifacts.get_many(digests)
            for group in block:
                said = {each.sample: texts[each.text] for each in group.feedback}
                lost = {each.sample for each in group.failed}
                passed = (sample for sample in range(len(group.rewards)) if sample not in lost)
                yield Prompt(
                    group.question,
                    texts[group.question],
                    group.answer,
                    [
                        self._response(texts[digest], said.get(sample, ""))
                        for sample, digest in zip(passed, group.passed, strict=False)
                    ],
                    [
                        Failure(
                            _key(group.question, each.trajectory),
                            self._response(texts[each.trajectory], said.get(each.sample, "")),
                        )
                        for each in group.failed
                    ],
                )


def _sampled(groups: Iterable[GroupIngested]) -> tuple[list[list[GroupIngested]], list[list[GroupIngested]]]:
    """The groups of SAMPLED questions with failures and of as many without, REPEATED each at most: those with
    the lowest digests, so that order does not matter."""
    heaps: tuple[list[int], list[int]] = [], []
    kept: tuple[dict[int, list[GroupIngested]], dict[int, list[GroupIngested]]] = {}, {}
    for group in groups:
        if not group.failed and not group.passed:
            continue
        side = int(not group.failed)
        heap, chosen, digest = heaps[side], kept[side], int(group.question[:16], 16)
        if digest not in chosen:
            if len(heap) == SAMPLED:
                if -heap[0] < digest:
                    continue
                del chosen[-heapq.heappop(heap)]
            heapq.heappush(heap, -digest)
            chosen[digest] = []
        chosen[digest].append(group)
        if len(chosen[digest]) > 1:
            chosen[digest] = sorted(chosen[digest], key=_texts_of)[:REPEATED]
    return list(kept[0].values()), list(kept[1].values())


def _texts_of(group: GroupIngested) -> list[str]:
    return sorted([*group.passed, *(each.trajectory for each in group.failed)])


def is_plain(found: Explained) -> bool:
    """Whether it is not a reasoning mistake: then no model is asked."""
    return found.cause is not None and found.cause.level == 1


def _computed(found: Explained, passed: str | None, feedback: str) -> Computed:
    step = _step(found)
    shown = step if step is not None and step.shown else None
    findings = [f"the feedback on it: {feedback[:LONGEST]}"] if feedback else []
    findings += [] if shown is None else [f"{shown.text}: {shown.why}"]
    findings += [each.text[:LONGEST] for each in found.evidence]
    if found.cause is not None:
        findings.append(f"like other failures, it {found.cause.description}")
    return Computed(passed, tuple(findings), shown)


def _step(found: Explained) -> WrongStep | None:
    step = found.located
    if step is None:
        return None
    return WrongStep(line=step.line, text=step.text[:LONGEST], why=step.why[:LONGEST], shown=step.shown)


def _pair(found: Explained, prompt: Prompt, group: GroupIngested, artifacts: Artifacts) -> WrittenPair | None:
    pair = found.pair
    if pair is None:
        return None
    digests = dict(zip(map(id, prompt.passed), group.passed, strict=True))
    beside = digests.get(id(pair.sibling)) or artifacts.put_many([pair.sibling.text])[0]
    return WrittenPair(
        line=pair.wrote.line,
        start=pair.wrote.start,
        wrote=pair.wrote.text[:LONGEST],
        passed=beside,
        passed_line=pair.should.line,
        passed_start=pair.should.start,
        should=pair.should.text[:LONGEST],
    )


def _diagnosed(
    failure: FailureObserved, found: Explained, pair: WrittenPair | None = None
) -> FailureDiagnosed:
    cause = found.cause
    return FailureDiagnosed(
        failure_id=failure.failure_id,
        attempt=failure.attempt,
        supplied=[],
        verdict="slip" if cause is None else "new_cause",
        cause_id=None,
        description=None if cause is None else cause.description,
        cause_key=None if cause is None else cause.key,
        level=None if cause is None else cause.level,
        evidence=[Mark(line=each.line, text=each.text[:LONGEST]) for each in found.evidence],
        step=_step(found),
        pair=pair,
    )


def _known(memory: Memory) -> dict[str, LocalCause]:
    """Valid causes found without a model, by their failures."""
    state = memory.state
    counted = set(state.counted())
    causes: dict[str, LocalCause] = {}
    found: dict[str, LocalCause] = {}
    questions: dict[str, str] = {}
    observed: dict[str, str] = {}
    types = [CandidateScored, FailureObserved, FailureDiagnosed, CauseCreated, CauseMatched]
    made: dict[str, LocalCause] = {}
    for fact in memory.log.chosen(memory.run_id, types):
        if fact.round not in counted:
            continue
        match fact.event:
            case CandidateScored() as scored:
                questions[scored.question_id] = scored.question
            case FailureObserved() as failure:
                observed[failure.failure_id] = _key(questions[failure.question_id], failure.trajectory)
            case FailureDiagnosed() as event if event.cause_key is not None and event.level is not None:
                cause = LocalCause(event.cause_key, event.level, event.description or "", SKILLS[event.level])
                made[event.failure_id] = causes.setdefault(event.cause_key, cause)
            case CauseCreated(failure_id=name) | CauseMatched(failure_id=name) if name in made:
                found[observed[name]] = made[name]
            case _:
                pass
    return found


def _causes(memory: Memory) -> dict[str, str]:
    """Stored causes by key; one named by a model by its description."""
    causes = memory.state.causes
    found = {memory.state.found_as(cause): cause.cause_id for cause in causes.values()}
    first = {cause.failure_id: cause.cause_id for cause in causes.values()}
    for number in sorted({cause.created_round for cause in causes.values()}):
        for fact in memory.log.chosen(memory.run_id, [FailureDiagnosed], (number, number)):
            if fact.event.cause_key is not None and fact.event.failure_id in first:
                found[fact.event.cause_key] = first[fact.event.failure_id]
    return found


def _key(question: str, trajectory: str) -> str:
    return question[:16] + trajectory[:16]


def _stop(should_stop: ShouldStop | None, left: int) -> None:
    if should_stop is not None and should_stop():
        raise StoppedSafely(f"diagnosis stopped with {left} failures to go", hint=AGAIN)


def _blocks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
