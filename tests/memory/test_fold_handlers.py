"""The fold's functions are found by the event that their annotation names."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from diagevo.errors import InconsistentError
from diagevo.memory.events import EVENT_TYPES, CauseCreated, DuplicateJudged, NodeAssigned, NodeCreated
from diagevo.memory.events.decode import Fact
from diagevo.memory.state import effects
from diagevo.memory.state.fold import BETWEEN_ROUNDS, IN_ROUND, event_of, handlers
from diagevo.memory.state.model import MemoryState
from tests.memory.audit.played import Player
from tests.memory.play import opened


def test_each_event_of_the_catalogue_has_one_function_in_the_fold() -> None:
    assert sorted([*IN_ROUND, *BETWEEN_ROUNDS]) == sorted(EVENT_TYPES)


def test_what_is_recorded_is_not_changed_in_memory_either() -> None:
    assert [name for name, event in EVENT_TYPES.items() if not event.__struct_config__.frozen] == []


def test_a_function_stands_under_the_event_that_it_takes() -> None:
    for tag, function in [*IN_ROUND.items(), *BETWEEN_ROUNDS.items()]:
        assert event_of(function) is EVENT_TYPES[tag]
    assert IN_ROUND["NodeCreated"] is effects.node_created


def test_the_tag_is_read_from_the_annotation_and_nowhere_else() -> None:
    def of_a_node(state: MemoryState, fact: Fact[NodeCreated]) -> None: ...

    def cause_created(state: MemoryState, fact: Fact[CauseCreated]) -> None: ...

    table = handlers(cause_created, of_a_node)
    assert table == {"CauseCreated": cause_created, "NodeCreated": of_a_node}


def test_only_what_was_diagnosed_as_new_is_judged_and_a_cause_goes_under_one_node(tmp_path: Path) -> None:
    """As a log from outside may say it: a writer never does."""
    with opened(tmp_path) as memory:
        player = Player(memory)
        player.configure()
        player.open(1)
        player.score(player.question(0, [("4", 6), ("5", 3), ("6", 3)], "kept"))
        for sample, verdict in enumerate(["new_cause", "slip"]):
            player.fail(f"r1.q0.a{sample}")
            player.diagnose(
                f"r1.q0.a{sample}", verdict, description="a slip of the pen" if not sample else None
            )
        player.trained()
        state, now = memory.state, memory.state.open
        assert now is not None
        new = DuplicateJudged(
            failure_id="r1.q0.a0", candidates=[], nearest=None, duplicate=False, cause_id=None
        )
        slip = replace(new, failure_id="r1.q0.a1")
        with pytest.raises(InconsistentError, match=r"r1.q0.a1 is a slip"):
            effects.judged(state, now, Fact("DuplicateJudged", 1, "a", 1, 1, slip))
        effects.judged(state, now, Fact("DuplicateJudged", 1, "b", 1, 1, new))
        for node, label in (("n1", "sums"), (None, None)):
            found = NodeAssigned(failure_id="r1.q0.a0", shortlist=[], node_id=node, new_label=label)
            with pytest.raises(InconsistentError, match="a node, or the label of a new one, is needed"):
                effects.assigned(state, now, Fact("NodeAssigned", 1, "c", 1, 1, found))
