"""A verb that is called again: the same is fine, also from a process that begins anew, and anything else
about the same thing is refused."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from diagevo.errors import ConflictError
from diagevo.memory.events import (
    Artifact,
    CheckpointEvaluated,
    DuplicateJudged,
    FailedRollout,
    GroupIngested,
    GroupRewards,
    NodeAssigned,
    NodePairJudged,
    PhaseMeasured,
    SimilarCause,
    StepTrained,
)
from diagevo.memory.memory import Memory
from tests.contracts.databases import Store
from tests.memory.play import candidate, failure, first_round, new_cause, recurrence, text

pytestmark = pytest.mark.slow

Verb = Callable[[Memory], Any]
OTHER = text("another text")
GROUP = GroupIngested(
    step=1,
    group=0,
    question=text("q"),
    answer="4",
    rewards=[1.0, 0.0],
    passes=1,
    reference=text("r"),
    passed=[text("r")],
    failed=[FailedRollout(sample=1, trajectory=text("t"))],
    source="1.jsonl",
)
MEASURED = CheckpointEvaluated(
    role="solver", checkpoint="x", benchmark="held-out", questions=9, conditions={}, metrics={"greedy": 0.5}
)
PHASE = PhaseMeasured(
    stage="solver",
    attempt=1,
    steps=4,
    first_kl=0.0,
    sampling_gap=0.25,
    reward_lowest=0.0,
    reward_highest=1.0,
    completions=8,
    cut_off=0,
    attention="sdpa",
)
STEP = StepTrained(
    stage="solver",
    attempt=1,
    step=1,
    groups=[GroupRewards(prompt="r2.q1", rewards=[1.0, -1.0])],
    loss=0.5,
    entropy=None,
    grad_norm=0.25,
    kl=0.0,
)
LEFT = Artifact(path="rounds/002/solver", sha256="0" * 64)
NEAR = SimilarCause(cause_id="c1", similarity=0.25)
JUDGED = DuplicateJudged(failure_id="r2.q1.a0", candidates=[], nearest=NEAR, duplicate=False, cause_id=None)
ASSIGNED = NodeAssigned(failure_id="r2.q1.a0", shortlist=[], node_id=None, new_label="read every line")
MERGED = NodePairJudged(nodes=("n1", "n2"), similarity=0.7, merge=True, label="be careful")


def _changed(model: Any, **values: Any) -> Any:
    return structs.replace(model, **values)


def _completed(**other: Any) -> Verb:
    said = {"artifacts": [LEFT], "seconds": 1.5, "parts": {"extraction": 1.0}, "reward": 0.5} | other
    return lambda m: m.complete_stage("solver", **said)


def _observed(**other: Any) -> Verb:
    """One failure whose rightness nobody knows and one that is known not to be right; `other` is of the
    latter."""
    return lambda m: m.observe(
        [failure("r2.q0.a0"), _changed(failure("r2.q1.a0"), **({"right": False} | other))]
    )


def _diagnosed(description: str) -> Verb:
    return lambda m: m.diagnosed([recurrence("r2.q0.a0", "c1", memory=m), new_cause("r2.q1.a0", description)])


def _abandoned(**other: Any) -> Verb:
    return lambda m: m.abandon_stage("votes", **({"after_step": 0, "seconds": 1.0, "reason": "lost"} | other))


CANDIDATES = [candidate("r2.q0", cause="c1"), candidate("r2.q1")]
ROUND: list[tuple[Verb, list[Verb]]] = [
    (lambda m: m.open_round(2, seed=5), [lambda m: m.open_round(2, seed=6)]),
    (lambda m: m.ingested([GROUP], 7), [lambda m: m.ingested([_changed(GROUP, rewards=[1.0, 0.5])], 7)]),
    (
        lambda m: m.evaluated(MEASURED, 1),
        [
            lambda m: m.evaluated(_changed(MEASURED, metrics={"greedy": 0.75}), 1),
            lambda m: m.evaluated(_changed(MEASURED, conditions={"samples": 8}), 1),
        ],
    ),
    (
        lambda m: m.score(CANDIDATES),
        [
            lambda m: m.score([CANDIDATES[0], candidate("r2.q1", 7)]),
            lambda m: m.score([CANDIDATES[0], _changed(CANDIDATES[1], reference=OTHER)]),
        ],
    ),
    (lambda m: m.start_stage("votes"), []),
    (_abandoned(), [_abandoned(after_step=1), _abandoned(seconds=2.0), _abandoned(reason=None)]),
    (lambda m: m.start_stage("solver"), []),
    (
        _observed(),
        [
            _observed(right=True),
            _observed(right=None),
            _observed(step=2),
            _observed(trajectory=OTHER),
            _observed(reference=OTHER),
        ],
    ),
    (lambda m: m.step_trained(STEP), [lambda m: m.step_trained(_changed(STEP, loss=0.25))]),
    (lambda m: m.phase_measured(PHASE), [lambda m: m.phase_measured(_changed(PHASE, cut_off=1))]),
    (
        _completed(),
        [
            _completed(artifacts=[]),
            _completed(artifacts=[_changed(LEFT, sha256="1" * 64)]),
            _completed(seconds=2.5),
            _completed(parts={}),
            _completed(reward=None),
        ],
    ),
    (_diagnosed("skips a line"), [_diagnosed("skips two lines")]),
    (lambda m: m.settle("r2.q0.a0"), []),
    (
        lambda m: m.settle("r2.q1.a0", judged=JUDGED, assigned=ASSIGNED),
        [
            lambda m: m.settle("r2.q1.a0", judged=JUDGED, assigned=_changed(ASSIGNED, new_label="look")),
            lambda m: m.settle("r2.q1.a0", judged=_changed(JUDGED, nearest=None), assigned=ASSIGNED),
            lambda m: m.settle("r2.q1.a0", judged=_changed(JUDGED, duplicate=True, cause_id="c1")),
        ],
    ),
    (lambda m: m.judge_nodes(MERGED), [lambda m: m.judge_nodes(_changed(MERGED, merge=False, label=None))]),
]


def _refused(memory: Memory, verb: Verb) -> bool:
    try:
        verb(memory)
    except ConflictError:
        return True
    return False


def test_the_same_again_changes_nothing_and_other_content_is_refused(store: Store) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 1), ("swaps digits", "copy", 1)])
    for step, (same, others) in enumerate(ROUND):
        with store.open() as memory:
            first = same(memory)
            events, state = memory.log.count("a"), memory.state.copy()
            assert same(memory) == first, step
            assert memory.log.count("a") == events, step
        with store.open() as memory:
            assert same(memory) == first, step
            accepted = [number for number, other in enumerate(others) if not _refused(memory, other)]
            assert accepted == [], f"step {step}"
            assert (memory.log.count("a"), memory.state) == (events, state), step
    with store.open() as memory:
        assert memory.commit().failures == 4, "c1 twice, c2, and c3 once: nothing was counted again"


def test_what_comes_twice_in_one_call_is_recorded_once(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        memory.score([candidate("r1.q0")])
        memory.observe([failure("r1.q0.a0"), failure("r1.q0.a0")])
        assert memory.log.count("a", "FailureObserved") == 1
        with pytest.raises(ConflictError, match="already observed with other content"):
            memory.observe([failure("r1.q0.a0", step=2)])
        right = _changed(failure("r1.q0.a1"), right=True)
        assert _refused(memory, lambda m: m.observe([right, _changed(right, right=False)]))
        assert [f.failure_id for f in memory.undiagnosed()] == ["r1.q0.a0"]
