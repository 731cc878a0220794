"""Hand-worked cases of the paper's equations, through the memory's verbs."""

from fractions import Fraction
from pathlib import Path

import pytest

from diagevo.equations.policy import Frequency, shares
from diagevo.equations.schedule import Share, epsilon
from diagevo.errors import OutOfOrderError
from diagevo.memory.events import Embedder, NodePairJudged, RunConfigured
from diagevo.memory.memory import Memory
from tests.memory.play import (
    candidate,
    failure,
    first_round,
    new_cause,
    opened,
    other,
    recurrence,
    settle_duplicate,
    settle_new,
)

HALF = Fraction(1, 2)


@pytest.fixture
def memory(tmp_path: Path):
    with opened(tmp_path) as memory:
        yield memory


def _configured(given: Memory, **sections: dict) -> None:
    given.configure(
        RunConfigured(
            config=sections,
            models={},
            embedder=Embedder(name="none", dimension=8, revision=""),
            version="test",
        )
    )


def test_as_many_failures_as_in_the_reference_round_give_epsilon_one_third() -> None:
    assert epsilon(7, 7, HALF) == Fraction(1, 3)


def test_epsilon_is_one_half_where_z_equals_k() -> None:
    assert epsilon(5, 10, HALF) == HALF
    assert epsilon(20, 10, Fraction(2)) == HALF


def test_no_failures_give_epsilon_one_and_no_probabilities() -> None:
    assert epsilon(0, None, HALF) == 1
    assert epsilon(0, 12, HALF) == 1
    assert shares(Frequency(), {}) == {}


def test_causes_are_drawn_in_proportion_to_their_failures() -> None:
    found = shares(Frequency(), {"c1": 3, "c2": 1})
    assert found == {"c1": Share(3, 4), "c2": Share(1, 4)}
    assert [share.p for share in found.values()] == [Fraction(3, 4), Fraction(1, 4)]


def test_the_reference_is_the_first_round_with_failures(memory: Memory) -> None:
    memory.open_round(1)
    memory.score([candidate("r1.q0")])
    empty = memory.commit()
    assert (empty.reference_round, empty.reference_failures, empty.epsilon_next) == (None, None, "1")
    first_round(memory, [("drops a carry", "add", 4)])
    assert (memory.state.reference_round, memory.state.reference_failures) == (2, 4)
    assert memory.state.epsilon == Fraction(1, 3)


def test_a_new_cause_matched_twice_more_in_its_round_has_three_failures(memory: Memory) -> None:
    first_round(memory, [("drops a carry", "add", 3)])
    assert memory.cause("c1").frequency == 3
    assert memory.state.failures == 3


def test_a_cause_promoted_and_failed_in_one_round_is_active_with_the_new_failures_only(
    memory: Memory,
) -> None:
    first_round(memory, [("drops a carry", "add", 11), ("swaps digits", "copy", 1)])
    memory.open_round(2)
    [promoted] = memory.score(
        [
            candidate("r2.q0", 10, cause="c1"),
            candidate("r2.q1", 8, cause="c1"),
            candidate("r2.q2", 6, cause="c2"),
        ]
    )
    assert (promoted.cause_id, promoted.questions, promoted.consistency) == ("c1", 2, "3/4")
    assert (promoted.threshold, promoted.closed_frequency) == ("7/10", 11)
    assert memory.promote() == [promoted]
    assert (memory.cause("c1").state, memory.cause("c1").frequency) == ("mastered", 0)
    memory.observe([failure("r2.q1.a0"), failure("r2.q1.a1")])
    memory.diagnosed(
        [recurrence("r2.q1.a0", "c1", memory=memory), new_cause("r2.q1.a1", "loses a carry", memory=memory)]
    )
    memory.settle("r2.q1.a0")
    settle_duplicate(memory, "r2.q1.a1", "c1")
    memory.commit()
    assert (memory.cause("c1").state, memory.cause("c1").frequency) == ("active", 2)
    assert memory.state.failures == 3
    assert memory.state.epsilon == Fraction(12, 12 + 6)  # F₁ = 12, F = 3, k = 1/2
    types = [r.type for r in memory.log.read("a", rounds=(2, 2))]
    assert types.count("CauseReactivated") == 1
    assert types.index("CauseReactivated") == types.index("CauseMatched") + 1


def test_promotion_counts_rejected_and_unanimous_candidates_but_no_invalid_one(memory: Memory) -> None:
    first_round(memory, [("drops a carry", "add", 2)])
    memory.open_round(2)
    scored = [
        candidate("r2.q0", 12, cause="c1"),
        candidate("r2.q1", 0, cause="c1"),
        candidate("r2.q2", cause="c1", invalid=True),
        candidate("r2.q3", 12),
    ]
    assert memory.score(scored) == []  # (1 + 0) / 2 < 7/10
    assert memory.cause("c1").state == "active"


def test_a_mean_of_exactly_the_threshold_promotes(memory: Memory) -> None:
    first_round(memory, [("drops a carry", "add", 2)])
    memory.open_round(2)
    [promoted] = memory.score([candidate("r2.q0", 7, cause="c1", responses=10)])
    assert promoted.consistency == "7/10"


def test_questions_count_alike_however_many_responses_each_had(memory: Memory) -> None:
    first_round(memory, [("drops a carry", "add", 2)])
    memory.open_round(2)
    scored = [
        candidate("r2.q0", 9, cause="c1", responses=12),
        candidate("r2.q1", 10, cause="c1", responses=12),
        candidate("r2.q2", 8, cause="c1", responses=10),
        candidate("r2.q3", 7, cause="c1", responses=10),
    ]
    [promoted] = memory.score(scored)
    assert promoted.consistency == "37/48"  # (3/4 + 5/6 + 4/5 + 7/10) / 4; all 34 of 44 would be 17/22


def test_the_stitched_partner_is_not_a_target(memory: Memory) -> None:
    first_round(memory, [("drops a carry", "add", 2), ("adds a carry twice", "add", 5)])
    memory.open_round(2)
    memory.score([candidate("r2.q0", 12, cause="c1")])
    memory.commit()
    memory.open_round(3)
    memory.score([candidate("r3.q0", 3, cause="c2", partner="c1")])
    memory.commit()
    assert (memory.cause("c1").state, memory.cause("c2").state) == ("mastered", "active")


def test_a_mastered_cause_cannot_be_a_target(memory: Memory) -> None:
    first_round(memory, [("drops a carry", "add", 2)])
    memory.open_round(2)
    memory.score([candidate("r2.q0", 12, cause="c1")])
    memory.commit()
    memory.open_round(3)
    with pytest.raises(OutOfOrderError, match="was not Active when the round began"):
        memory.score([candidate("r3.q0", 3, cause="c1")])


def test_merging_nodes_keeps_states_and_frequencies(memory: Memory) -> None:
    first_round(memory, [("drops a carry", "add", 2), ("swaps digits", "copy", 3), ("adds twice", "sum", 4)])
    memory.open_round(2)
    memory.score([candidate("r2.q0", 12, cause="c1")])
    before = {c.cause_id: (c.state, c.frequency) for c in memory.state.causes.values()}
    memory.judge_nodes(NodePairJudged(nodes=("n3", "n1"), similarity=0.8, merge=True, label="add numbers"))
    assert {c.cause_id: (c.state, c.frequency) for c in memory.state.causes.values()} == before
    assert memory.node("n1").causes == ("c1", "c3")
    assert memory.node("n1").label == "add numbers"
    assert memory.cause("c3").node_id == "n1"
    assert list(memory.state.nodes) == ["n1", "n2"]
    memory.commit()
    memory.open_round(3)
    draws = memory.schedule(3).draw(200, seed=1)
    partners = {d.cause_id: d.stitched_cause_id for d in draws if d.cause_id}
    assert partners == {"c3": "c1", "c2": None}


def test_a_refused_pair_is_not_asked_again_until_a_node_changes(memory: Memory) -> None:
    first_round(memory, [("drops a carry", "add", 1), ("swaps digits", "copy", 1)])
    memory.open_round(2)
    memory.score([candidate("r2.q0")])
    memory.judge_nodes(NodePairJudged(nodes=("n1", "n2"), similarity=0.6, merge=False))
    assert memory.node_pair_refused("n2", "n1")
    memory.observe([failure("r2.q0.a0")])
    memory.diagnosed([new_cause("r2.q0.a0", "skips a column")])
    settle_new(memory, "r2.q0.a0", node="n2")
    assert not memory.node_pair_refused("n1", "n2")


def test_slips_and_unresolved_failures_count_under_no_cause(memory: Memory) -> None:
    memory.open_round(1)
    memory.score([candidate("r1.q0")])
    memory.observe([failure("r1.q0.a0"), failure("r1.q0.a1"), failure("r1.q0.a2")])
    memory.diagnosed([other("r1.q0.a0", "slip"), other("r1.q0.a1", "unresolved")])
    assert [f.failure_id for f in memory.undiagnosed()] == ["r1.q0.a2"]
    assert [f.failure_id for f in memory.undiagnosed(again=True)] == ["r1.q0.a1", "r1.q0.a2"]
    with pytest.raises(OutOfOrderError, match="1 of 3 failures are not diagnosed"):
        memory.commit()
    memory.diagnosed([other("r1.q0.a2", "unresolved")])
    committed = memory.commit()
    assert (committed.failures, committed.undiagnosed) == (0, 2)


def test_an_unresolved_failure_can_be_asked_again(memory: Memory) -> None:
    memory.open_round(1)
    memory.score([candidate("r1.q0")])
    memory.observe([failure("r1.q0.a0")])
    memory.diagnosed([other("r1.q0.a0", "unresolved")])
    assert memory.times_asked("r1.q0.a0") == 1
    memory.diagnosed([other("r1.q0.a0", "slip", asked=2)])
    with pytest.raises(OutOfOrderError, match="was diagnosed before"):
        memory.diagnosed([other("r1.q0.a0", "slip", asked=3)])


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"policy": "free"}, Fraction(1)),
        ({"policy": "targeted"}, Fraction(0)),
        ({"policy": "fixed", "fixed_epsilon": "2/5"}, Fraction(2, 5)),
        ({"k": "2"}, Fraction(2, 3)),
    ],
)
def test_an_ablation_holds_epsilon(memory: Memory, schedule: dict, expected: Fraction) -> None:
    _configured(memory, schedule=schedule)
    assert memory.open_round(1).epsilon == 1  # F = 0 comes first, whatever the policy
    memory.score([candidate("r1.q0")])
    memory.observe([failure("r1.q0.a0")])
    memory.diagnosed([new_cause("r1.q0.a0", "drops a carry")])
    settle_new(memory, "r1.q0.a0", label="add")
    memory.commit()
    assert memory.state.epsilon == expected


def test_without_state_updates_every_cause_stays_active(memory: Memory) -> None:
    _configured(memory, memory={"state_updates": False})
    first_round(memory, [("drops a carry", "add", 2)])
    memory.open_round(2)
    assert memory.score([candidate("r2.q0", 12, cause="c1")]) == []
    memory.commit()
    assert memory.cause("c1").state == "active"


def test_a_promotion_may_ask_for_more_than_one_question(memory: Memory) -> None:
    _configured(memory, memory={"promotion_questions": 2, "theta_up": "1/2"})
    first_round(memory, [("drops a carry", "add", 2)])
    memory.open_round(2)
    assert memory.score([candidate("r2.q0", 12, cause="c1")]) == []
