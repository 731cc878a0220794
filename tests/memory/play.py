"""Short words for what happens in a round, and for playing rounds against a memory."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from msgspec import convert

import diagevo
from diagevo.memory.events import (
    CandidateScored,
    DuplicateJudged,
    FailureDiagnosed,
    FailureObserved,
    ModelCall,
    NodeAssigned,
    NodePairJudged,
    SimilarCause,
    SimilarNode,
    SuppliedCause,
)
from diagevo.memory.log.artifacts import Artifacts, digest_of
from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import prepare
from diagevo.memory.memory import Memory

_TEXTS: dict[str, str] = {}
_unstored = Artifacts.unstored


def text(words: str) -> str:
    """The digest of a text, which the memory that first meets it is given."""
    digest = digest_of(words)
    _TEXTS[digest] = words
    return digest


def _given(self: Artifacts, digests: Sequence[str]) -> list[str]:
    """What nobody stored, once the words of `text` are: these tests name many, and put none."""
    missing = _unstored(self, digests)
    self.put_many([_TEXTS[digest] for digest in missing if digest in _TEXTS])
    return [digest for digest in missing if digest not in _TEXTS]


Artifacts.unstored = _given


@cache
def _empty_database() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        database = Database(str(path))
        prepare(database, create=True)
        database.close()
        return path.read_bytes()


def migrated(url: str) -> str:
    """`url`, its SQLite file made where there is none: migrating each test's own would take most of their
    time."""
    path = Path(url.removeprefix("sqlite:///"))
    if "://" not in str(path) and not path.exists() and path.parent.is_dir():
        path.touch(mode=0o600)
        path.write_bytes(_empty_database())
    return url


def opened(folder: Path, run: str = "a") -> Memory:
    return diagevo.open(migrated(f"sqlite:///{folder / 'log.db'}"), run=run, root=folder)


def candidate(
    question_id: str,
    first: int = 6,
    *,
    cause: str | None = None,
    partner: str | None = None,
    invalid: bool = False,
    responses: int = 12,
    **more: object,
) -> CandidateScored:
    """`first` of `responses` votes agree; of the rest, each gave another answer. With 0, nobody answered.
    The filter is the paper's. `more`: fields as they are given."""
    mode = "free" if cause is None else "targeted" if partner is None else "stitched"
    first = 0 if invalid else first
    votes = [("1", first), *((f"other {i}", 1) for i in range(responses - first))] if first else []
    verdict = "too_hard" if 4 * first < responses else "too_easy" if 4 * first > 3 * responses else "kept"
    return convert(
        {
            "question_id": question_id,
            "question": text(question_id),
            "mode": mode,
            "cause_id": cause,
            "stitched_cause_id": partner,
            "responses": responses,
            "votes": votes,
            "first": first,
            "second": int(len(votes) > 1),
            "label": "1" if first else None,
            "verdict": "invalid" if invalid else verdict if first else "no_label",
            "reference": text("reference") if first else None,
            **more,
        },
        CandidateScored,
    )


def failure(failure_id: str, *, step: int = 1, attempt: int = 1, **more: object) -> FailureObserved:
    return convert(
        {
            "failure_id": failure_id,
            "question_id": failure_id.rpartition(".")[0],
            "stage": "solver",
            "attempt": attempt,
            "step": step,
            "trajectory": text(failure_id),
            "reference": text("reference"),
            **more,
        },
        FailureObserved,
    )


def new_cause(
    failure_id: str, description: str, *, attempt: int = 1, memory: Memory | None = None
) -> FailureDiagnosed:
    return diagnosis(failure_id, "new_cause", attempt, memory, description=description)


def recurrence(failure_id: str, cause: str, *, memory: Memory, attempt: int = 1) -> FailureDiagnosed:
    return diagnosis(failure_id, "recurrence", attempt, memory, cause_id=cause)


def other(failure_id: str, verdict: str, *, attempt: int = 1, asked: int = 1) -> FailureDiagnosed:
    """A slip or an unresolved one."""
    return diagnosis(failure_id, verdict, attempt, None, asked=asked)


def diagnosis(
    failure_id: str, verdict: str, attempt: int, memory: Memory | None, **more: object
) -> FailureDiagnosed:
    known = memory.supplied(failure_id.rpartition(".")[0]) if memory else ()
    supplied = [SuppliedCause(cause_id=c.cause_id, state=c.state) for c in known]
    values = {"cause_id": None, "description": None, **more}
    return convert(
        {"failure_id": failure_id, "attempt": attempt, "supplied": supplied, "verdict": verdict, **values},
        FailureDiagnosed,
    )


def settle_new(
    memory: Memory,
    failure_id: str,
    *,
    label: str | None = None,
    node: str | None = None,
    nearest: SimilarCause | None = None,
    shortlist: Sequence[SimilarNode] = (),
    call: ModelCall | None = None,
) -> None:
    """No duplicate: a new node with `label`, or under `node`."""
    memory.settle(
        failure_id,
        judged=DuplicateJudged(failure_id, [], nearest, duplicate=False, cause_id=None),
        assigned=NodeAssigned(failure_id, list(shortlist), node_id=node, new_label=label, call=call),
    )


def settle_duplicate(
    memory: Memory,
    failure_id: str,
    cause: str,
    *,
    similar: Sequence[SimilarCause] = (),
    call: ModelCall | None = None,
) -> None:
    nearest = similar[0] if similar else None
    judged = DuplicateJudged(failure_id, list(similar), nearest, duplicate=True, cause_id=cause, call=call)
    memory.settle(failure_id, judged=judged)


def first_round(memory: Memory, causes: Sequence[tuple[str, str, int]]) -> None:
    """Play the next round so that it makes (description, node label, failures) causes, in order."""
    number = memory.state.round + 1
    memory.open_round(number)
    questions = [f"r{number}.q{i}" for i in range(len(causes))]
    memory.score([candidate(q) for q in questions])
    for question, (_, _, count) in zip(questions, causes, strict=True):
        memory.observe([failure(f"{question}.a{i}") for i in range(count)])
    for question, (description, label, count) in zip(questions, causes, strict=True):
        ids = [f"{question}.a{i}" for i in range(count)]
        memory.diagnosed([new_cause(f, description) for f in ids])
        node = next((n.node_id for n in memory.state.nodes.values() if n.label == label), None)
        settle_new(memory, ids[0], node=node, label=None if node else label)
        created = list(memory.state.causes)[-1]
        for failure_id in ids[1:]:
            settle_duplicate(memory, failure_id, created)
    memory.commit()


def three_rounds(memory: Memory) -> None:
    """Two causes; in round 2 c1 is promoted and fails again; in round 3 nodes merge."""
    first_round(memory, [("drops a carry", "add", 3), ("swaps digits", "copy", 1)])
    memory.open_round(2)
    memory.score([candidate("r2.q0", 9, cause="c1"), candidate("r2.q1")])
    memory.observe([failure("r2.q0.a0"), failure("r2.q1.a3")])
    memory.diagnosed([recurrence("r2.q0.a0", "c1", memory=memory), new_cause("r2.q1.a3", "skips a line")])
    memory.settle("r2.q0.a0")
    settle_new(memory, "r2.q1.a3", label="read every line")
    memory.commit()
    memory.open_round(3)
    memory.score([candidate("r3.q0", 9, cause="c2")])
    memory.judge_nodes(NodePairJudged(nodes=("n1", "n3"), similarity=0.7, merge=True, label="be careful"))
    memory.commit()


def embed(texts: Sequence[str]) -> np.ndarray:
    """(n, 8) unit vectors that depend on the text alone."""
    rows = []
    for text in texts:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        row = np.random.default_rng(seed).normal(size=8)
        rows.append(row / np.linalg.norm(row))
    return np.asarray(rows, dtype=np.float32)
