"""Failures in words: the question, and the evidence for their cause; else the step computed
to be wrong, else the first that differs from a pass."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from diagevo.memory.events import CandidateScored, FailureDiagnosed, FailureObserved, WrittenPair
from diagevo.memory.events.records import event_id
from diagevo.memory.history import E, History, expect
from diagevo.memory.stories.failures import FailureStory, held_against
from diagevo.text.steps import parted

COMPARED = 20_000
"""Maximum characters of a response searched for that step."""


@dataclass(frozen=True, slots=True)
class Example:
    """A failure in words. Texts are None if they were not kept."""

    failure_id: str
    question: str | None
    """Without the common beginning of all prompts."""
    against: str
    """A response, or where none passed one to a prompt near to it, the known answer, or nothing: `actual` is
    then its end."""
    actual: str | None
    expected: str | None
    """In a response that agrees with the label, or that passed; where none did, the known answer."""
    wrong: str | None
    """Why the step is wrong, if that was computed; otherwise it is the first difference."""
    evidence: str | None
    """The evidence for its cause in it, if found without a model."""
    truth: str | None
    label_true: bool | None
    right: bool | None
    """Whether it gives the true answer: then `expected` is wrong."""
    pair: WrittenPair | None
    """The place that its cause is about, with the nearest response that passed."""
    feedback: str | None
    """The files' feedback on it."""


def typical(diagnosed: Iterable[FailureDiagnosed]) -> FailureDiagnosed:
    """The most typical failure of one cause: it writes what most of them write, against what most passes
    have."""
    events = list(diagnosed)
    found = [
        ("", "") if (pair := one.pair) is None else (pair.wrote.lower(), pair.should.lower())
        for one in events
    ]
    counted = Counter(found)
    best = max(range(len(events)), key=lambda at: (all(found[at]), any(found[at]), counted[found[at]], -at))
    return events[best]


def examples(history: History, failures: Mapping[str, tuple[int, FailureObserved]]) -> dict[str, Example]:
    """Of failures by their ids, each with its round."""

    def recorded(kind: type[E], key: Callable[[FailureObserved], str]) -> dict[str, E]:
        """By failure, the event of this key in its round."""
        ids = {name: event_id(n, kind.__name__, key(one)) for name, (n, one) in failures.items()}
        found = history.log.known(history.run_id, set(ids.values()))
        return {name: expect(found[one], kind) for name, one in ids.items() if one in found}

    scored = recorded(CandidateScored, lambda failure: failure.question_id)
    diagnosed = recorded(FailureDiagnosed, lambda failure: f"{failure.failure_id}.{failure.attempt}.1")
    digests = {one.question for one in scored.values()}
    for _, failure in failures.values():
        digests |= {failure.reference, failure.trajectory}
        digests |= set() if failure.feedback is None else {failure.feedback}
    texts = history.texts(sorted(digests))
    return {
        name: _example(failure, scored.get(name), texts, diagnosed.get(name), history.head)
        for name, (_, failure) in failures.items()
    }


def _example(
    failure: FailureObserved,
    scored: CandidateScored | None,
    texts: Mapping[str, str],
    diagnosed: FailureDiagnosed | None,
    head: str,
) -> Example:
    step = None if diagnosed is None else diagnosed.step
    evidence = [] if diagnosed is None else [mark.text for mark in diagnosed.evidence]
    question = None if scored is None else texts.get(scored.question)
    if question is not None and head and question.startswith(head):
        question = f"…{question[len(head) :]}"
    passed, failed = texts.get(failure.reference), texts.get(failure.trajectory)
    actual = expected = None
    if step is not None and step.shown:
        actual, expected = step.text, passed if failure.against == "answer" else ""
    elif passed is not None and failed is not None:
        if failure.against != "response":  # no step of it can be compared: how the response ends
            expected, actual = passed, (failed[-COMPARED:].strip().splitlines() or [""])[-1]
        else:
            _, expected, actual = parted(passed[:COMPARED], failed[:COMPARED])
    return Example(
        failure_id=failure.failure_id,
        question=question,
        against=held_against(failure, None if diagnosed is None else diagnosed.pair),
        actual=actual,
        expected=expected,
        wrong=step.why if step is not None and step.shown else None,
        evidence="; ".join(evidence) or None,
        truth=None if scored is None else scored.truth,
        label_true=None if scored is None else scored.label_true,
        right=failure.right,
        pair=None if diagnosed is None else diagnosed.pair,
        feedback=None if failure.feedback is None else texts.get(failure.feedback),
    )


def examples_of(history: History, stories: Iterable[FailureStory]) -> dict[str, Example]:
    """The examples of failures that have stories."""
    ids = {
        event_id(
            one.round, FailureObserved.__name__, f"{one.failure_id}.{one.stage}.{one.attempt}"
        ): one.failure_id
        for one in stories
    }
    found = history.log.known(history.run_id, ids)
    return examples(
        history, {ids[key]: (one.round, expect(one, FailureObserved)) for key, one in found.items()}
    )
