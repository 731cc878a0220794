"""Replay against the table worked by hand in played.py."""

from fractions import Fraction

import pytest

from diagevo.errors import ConfigError, InconsistentError, NotFoundError
from diagevo.memory.compare.replay import Rebuilt, compare_with_commit, describe, steps
from diagevo.memory.history import AsOf, History, open_history
from tests.contracts.databases import Store
from tests.memory.audit.conftest import RUN

A, M = "active", "mastered"
BY_HAND = {
    1: ({"c1": (A, 2), "c2": (A, 1), "c3": (A, 1)}, 4, Fraction(1), Fraction(1, 3), 3),
    2: ({"c1": (M, 0), "c2": (A, 3), "c3": (A, 2)}, 5, Fraction(5, 4), Fraction(2, 7), 2),
    3: ({"c1": (A, 1), "c2": (A, 3), "c3": (M, 0), "c4": (A, 1)}, 5, Fraction(5, 4), Fraction(2, 7), 2),
    4: ({"c1": (A, 1), "c2": (M, 0), "c3": (A, 1), "c4": (A, 1)}, 3, Fraction(3, 4), Fraction(2, 5), 2),
}


def rebuilt(history: History, as_of: AsOf) -> Rebuilt:
    """From the first event, without a snapshot."""
    return describe(history.state(as_of, snapshots=False))


@pytest.mark.parametrize("round_", BY_HAND)
def test_each_round_is_rebuilt_as_worked_by_hand(history: History, round_: int) -> None:
    causes, failures, z, epsilon, nodes = BY_HAND[round_]
    memory = rebuilt(history, history.as_of(round_))
    assert {c.id: (c.state, c.frequency) for c in memory.causes} == causes
    assert (memory.failures, memory.z, memory.epsilon_next, memory.nodes) == (failures, z, epsilon, nodes)
    assert (memory.reference_round, memory.reference_failures) == (1, 4)
    assert memory.active + memory.mastered == len(causes)


def test_probabilities_are_frequencies_over_their_sum(history: History) -> None:
    memory = rebuilt(history, history.as_of(3))
    shares = {c.id: c.probability for c in memory.causes}
    assert shares == {"c1": Fraction(1, 5), "c2": Fraction(3, 5), "c3": None, "c4": Fraction(1, 5)}


def test_a_cause_may_be_stitched_to_mastered_causes_of_its_node_alone(history: History) -> None:
    memory = rebuilt(history, history.as_of(3))
    assert {c.id: c.partners for c in memory.causes} == {"c1": 1, "c2": 0, "c3": 0, "c4": 0}


def test_replay_equals_the_commit_and_its_projections(history: History) -> None:
    for round_ in BY_HAND:
        assert compare_with_commit(history, history.as_of(round_)) == []


def test_the_check_names_a_projection_row_that_was_changed(mine: Store) -> None:
    mine.tamper("UPDATE cause_history SET frequency = 9 WHERE cause_id = 'c2' AND round = 3")
    history = open_history(mine.url, RUN)
    [told] = compare_with_commit(history, history.as_of(3))
    assert told == "cause_history 3 c2 has frequency 9, the events give 3"
    history.close()


def test_replay_reads_no_projection_and_no_snapshot(mine: Store) -> None:
    mine.tamper(
        "DELETE FROM cause_history", "DELETE FROM snapshot", "DELETE FROM cause", "DELETE FROM round_summary"
    )
    history = open_history(mine.url, RUN)
    assert rebuilt(history, history.as_of(3)).failures == 5
    history.close()


def test_replay_refuses_an_event_that_does_not_follow(mine: Store) -> None:
    mine.tamper(
        'UPDATE event SET payload = replace(payload, \'"consistency":"17/24"\', \'"consistency":"18/24"\')'
        " WHERE type = 'CausePromoted'"
    )
    history = open_history(mine.url, RUN)
    with pytest.raises(InconsistentError, match="CausePromoted"):
        rebuilt(history, history.as_of(3))
    history.close()


def test_a_promotion_and_a_reactivation_of_one_round_are_separate_steps(history: History) -> None:
    told = [(s.type, s.subject, s.after, s.failures) for s in steps(history, 3, history.end)]
    assert told == [
        ("RoundOpened", "round 3", "ε = 2/7", 5),
        ("CausePromoted", "c2", "Mastered, f = 0", 2),
        ("CausePromoted", "c3", "Mastered, f = 0", 0),
        ("CauseMatched", "c1", "Mastered, f = 0, to be reactivated", 0),
        ("CauseReactivated", "c1", "Active, f = 1", 1),
        ("CauseMatched", "c2", "Mastered, f = 0, to be reactivated", 1),
        ("CauseReactivated", "c2", "Active, f = 1", 2),
        ("CauseMatched", "c2", "Active, f = 2", 3),
        ("CauseMatched", "c2", "Active, f = 3", 4),
        ("CauseCreated", "c4", "Active, f = 1", 5),
        ("RoundCommitted", "round 3", "ε = 2/7", 5),
    ]


def test_inside_a_round_the_figures_are_those_that_a_commit_would_give(history: History) -> None:
    promoted = next(s.position for s in steps(history, 3, history.end) if s.type == "CausePromoted")
    memory = rebuilt(history, history.as_of(at=promoted))
    assert (memory.round, memory.open_round, memory.failures) == (2, 3, 2)
    assert memory.epsilon_next == Fraction(4, 4 + 2 * 2)


def test_a_round_that_is_not_committed_is_not_found(history: History) -> None:
    with pytest.raises(NotFoundError) as caught:
        history.as_of(5)
    assert caught.value.exit_code == 3
    assert caught.value.hint == "rounds 1 to 4 are committed"


def test_a_round_and_a_position_exclude_each_other(history: History) -> None:
    with pytest.raises(ConfigError):
        history.as_of(1, at=20)
