"""Trail, and the difference between two rounds."""

from fractions import Fraction

import pytest

from diagevo.errors import ConfigError
from diagevo.memory.compare.memory_diff import diff_memory
from diagevo.memory.history import AsOf, History
from diagevo.memory.stories.references import EventFilter, trail


@pytest.mark.parametrize(
    ("wanted", "types"),
    [
        ({"ref": "c4"}, "CauseCreated CandidateScored"),
        ({"ref": "c3", "types": ("CausePromoted", "CauseReactivated")}, "CausePromoted CauseReactivated"),
        (
            {"ref": "r4.q0"},
            "CandidateScored FailureObserved FailureDiagnosed CauseMatched CauseReactivated",
        ),
        ({"ref": "n3"}, "NodeCreated CauseCreated NodePairJudged NodesMerged"),
    ],
)
def test_a_trail_is_every_event_that_names_it(history: History, wanted: dict, types: str) -> None:
    """A question has its failures, a node its causes and merges."""
    assert [r.type for r in trail(history, EventFilter(**wanted), history.end)] == types.split()


@pytest.mark.parametrize("ref", [None, "c1", "n1"])
def test_the_last_events_come_oldest_first(history: History, ref: str | None) -> None:
    every = [r.position for r in trail(history, EventFilter(ref), history.end)]
    last = [r.position for r in trail(history, EventFilter(ref, last=2), history.end)]
    assert last == every[-2:]
    assert every == sorted(every)


def test_the_difference_of_two_rounds(history: History) -> None:
    found = diff_memory(history, history.as_of(1), history.as_of(3))
    assert (found.failures, found.epsilon_next) == ((4, 5), (Fraction(1, 3), Fraction(2, 7)))
    assert {c.cause_id: c.what for c in found.causes} == {
        "c1": ("promoted", "reactivated"),
        "c2": ("promoted", "reactivated"),
        "c3": ("promoted", "moved"),
        "c4": ("created",),
    }
    assert [(n.node_id, n.what, n.detail) for n in found.node_changes] == [("n3", "merged", "into n1")]


def test_a_difference_is_not_told_backwards(history: History) -> None:
    with pytest.raises(ConfigError, match="round 4 comes after round 2") as refused:
        diff_memory(history, history.as_of(4), history.as_of(2))
    assert refused.value.hint == "diagevo runs diff played@2..played@4"


def test_a_round_does_not_differ_from_itself(history: History) -> None:
    assert diff_memory(history, history.as_of(3), history.as_of(3)).same


def test_everything_is_new_since_the_beginning(history: History) -> None:
    found = diff_memory(history, AsOf(0, 0, 0), history.as_of(1))
    assert [c.what for c in found.causes] == [("created",)] * 3
    assert found.failures == (0, 4)
