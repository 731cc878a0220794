"""Carries a person's assignments over to the rounds that repeat the failures: a diagnosis never overwrites
them."""

from collections.abc import Sequence

from diagevo.memory.events import CandidateScored, FailureAssigned, FailureObserved
from diagevo.memory.memory import Memory
from diagevo.memory.state.assignments import SampledResponse, causes_of, moves, said, words_of


def name_causes(memory: Memory) -> None:
    """Make sure that every cause named by a person is stored: a diagnosis compares new ones with them."""
    words = said(memory.log, memory.run_id)
    known = _Causes(memory) if words else None
    for word in words.values():
        assert known is not None
        known.of(word, word.failure.failure_id)


def carry(memory: Memory, rounds: Sequence[int]) -> None:
    """Assign the failures of these rounds to the causes that a person chose."""
    words = said(memory.log, memory.run_id)
    if not words:
        return
    last = {fact.event.failure.failure_id: fact.event for fact in moves(memory.log, memory.run_id)}
    now, known = causes_of(moves(memory.log, memory.run_id)), _Causes(memory)
    again: dict[tuple[str, str, str | None], list[str]] = {}
    for number in rounds:
        questions: dict[str, str] = {}
        for fact in memory.log.chosen(memory.run_id, [CandidateScored, FailureObserved], (number, number)):
            if isinstance(fact.event, CandidateScored):
                questions[fact.event.question_id] = fact.event.question
                continue
            failure = fact.event
            name = failure.failure_id
            rollout = SampledResponse(
                questions[failure.question_id], failure.trajectory, name.rpartition(".")[2]
            )
            if (word := words.get(rollout)) is None:
                continue
            cause_id = known.of(word, name)
            before = last.get(name)
            stands = isinstance(before, FailureAssigned) and not before.undo and now[name] == cause_id
            if not stands:
                again.setdefault((cause_id, word.by, word.note), []).append(name)
    for (cause_id, by, note), names in again.items():
        memory.assign(names, cause_id, by, note)


class _Causes:
    """The stored cause for a person's label: the one that they named, else one with that description, else
    a new one."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._words = words_of(memory.log, memory.run_id)

    def of(self, word: FailureAssigned, failure_id: str) -> str:
        stored = self.memory.state.causes
        if word.cause_id in stored:
            return word.cause_id
        words = self._words[word.cause_id]
        called = (cause.cause_id for cause in stored.values() if cause.description == words)
        found = next(called, None)
        return found or self.memory.add_cause(words, failure_id, word.by).cause_id
