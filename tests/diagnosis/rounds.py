"""Rounds played by hand, up to the point where diagnosis begins, and a diagnostician that says what it is
told."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import diagevo
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
from diagevo.memory.events import CandidateScored, Embedder, FailureObserved, RunConfigured
from diagevo.memory.memory import Memory
from diagevo.memory.state.projected_schedule import Draw
from tests.memory.play import candidate, failure

DIMENSION = 64


def open_memory(folder: Path, run: str = "a") -> Memory:
    """A configured memory in `folder`; opened again where it exists."""
    memory = diagevo.open(str(folder / "a.db"), run=run)
    memory.configure(
        RunConfigured(
            config={"seed": 0},
            models={},
            embedder=Embedder(name="hashing", dimension=DIMENSION, revision="words-bigrams-1"),
            version="test",
        )
    )
    return memory


@dataclass(frozen=True, slots=True)
class Question:
    """A kept question of the round: who asked for it, and the solver's failed responses to it."""

    failures: Sequence[str]
    text: str = "Solve the equation."
    label: str = "7"
    reference: str = "Squaring and checking gives \\boxed{7}."
    cause_id: str | None = None
    stitched: str | None = None
    first: int = 8
    """Votes for the label, of 12; the others gave an answer each."""


def play(memory: Memory, number: int, questions: Sequence[Question]) -> list[FailureObserved]:
    """Open round `number` and bring it to where the solver has been trained. Returns the failures."""
    memory.open_round(number)
    for stage in ("challenger", "candidates"):
        memory.start_stage(stage)
        memory.complete_stage(stage)
    memory.start_stage("votes")
    memory.score([scored(memory, number, index, question) for index, question in enumerate(questions)])
    memory.complete_stage("votes")
    failures = observe(memory, number, questions)
    memory.complete_stage("solver")
    return failures


def scored(memory: Memory, number: int, index: int, question: Question) -> CandidateScored:
    others = [(f"other {i}", 1) for i in range(12 - question.first)]
    return candidate(
        f"r{number}.q{index}",
        question.first,
        cause=question.cause_id,
        partner=question.stitched,
        question=memory.artifacts.put(question.text),
        votes=[(question.label, question.first), *others],
        label=question.label,
        reference=memory.artifacts.put(question.reference),
    )


def observe(memory: Memory, number: int, questions: Sequence[Question]) -> list[FailureObserved]:
    attempt = memory.start_stage("solver")
    failures = [
        failure(
            f"r{number}.q{index}.a{sample}",
            attempt=attempt,
            step=index + 1,
            trajectory=memory.artifacts.put(text),
            reference=memory.artifacts.put(question.reference),
        )
        for index, question in enumerate(questions)
        for sample, text in enumerate(question.failures)
    ]
    memory.observe(failures)
    return failures


@dataclass
class Scripted:
    """Implements `Diagnostician` from functions of the texts it is given. Counts what it is asked."""

    extraction: Callable[[FailurePair], Extraction]
    duplicate: Callable[[str, Sequence[KnownCause]], str | None] = lambda text, candidates: None
    """The id of the candidate that is the same, or None."""
    node: Callable[[str, Sequence[NodeCandidate]], str] = lambda text, shortlist: f"label of {text}"
    """A listed node's id, or a new label."""
    merge: Callable[[NodeContents, NodeContents], str | None] = lambda a, b: None
    """The merged label, or None."""
    workers: int = 1
    name: str = "scripted"
    revision: str = "1"
    asked: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def _count(self, decision: str) -> None:
        with self.lock:
            self.asked[decision] = self.asked.get(decision, 0) + 1

    def extract(self, pair: FailurePair) -> Extraction:
        self._count("extract")
        return self.extraction(pair)

    def judge_duplicate(self, description: str, candidates: Sequence[KnownCause]) -> DuplicateJudgement:
        self._count("duplicate")
        same = self.duplicate(description, candidates)
        return DuplicateJudgement(same is not None, same)

    def assign_node(self, description: str, shortlist: Sequence[NodeCandidate]) -> NodeAssignment:
        self._count("assign")
        answer = self.node(description, shortlist)
        if any(answer == node.node_id for node in shortlist):
            return NodeAssignment(node_id=answer)
        return NodeAssignment(new_label=answer)

    def judge_pair(self, a: NodeContents, b: NodeContents) -> PairJudgement:
        self._count("merge")
        label = self.merge(a, b)
        return PairJudgement(label is not None, label)


class Angles:
    """Embeds `anything @30` at 30 degrees in a plane: cosines are those of the differences."""

    name, dimension, revision = "hashing", DIMENSION, "words-bigrams-1"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        angles = np.radians([float(text.rpartition("@")[2]) for text in texts])
        rows = np.zeros((len(texts), DIMENSION))
        rows[:, 0], rows[:, 1] = np.cos(angles), np.sin(angles)
        return rows.astype(np.float32)


def story(memory: Memory, types: Sequence[str] | None = None) -> list[tuple[str, str]]:
    """The run's events as (type, payload), in order."""
    return [(record.type, record.payload) for record in memory.log.read(memory.run_id, types=types)]


def memory_now(memory: Memory) -> Mapping[str, tuple[str, int, str]]:
    """Causes by description: state, frequency, node."""
    return {c.description: (c.state, c.frequency, c.node_id) for c in memory.state.causes.values()}


def draws(memory: Memory, number: int, n: int) -> list[Draw]:
    return memory.schedule(number).draw(n, seed=1)
