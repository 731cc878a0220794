"""The fold's functions are found by the event that their annotation names."""

from diagevo.memory.events import EVENT_TYPES, CauseCreated, NodeCreated
from diagevo.memory.events.decode import Fact
from diagevo.memory.state import effects
from diagevo.memory.state.fold import BETWEEN_ROUNDS, IN_ROUND, event_of, handlers
from diagevo.memory.state.model import MemoryState


def test_each_event_of_the_catalogue_has_one_function_in_the_fold() -> None:
    assert sorted([*IN_ROUND, *BETWEEN_ROUNDS]) == sorted(EVENT_TYPES)


def test_a_function_stands_under_the_event_that_it_takes() -> None:
    for tag, function in [*IN_ROUND.items(), *BETWEEN_ROUNDS.items()]:
        assert event_of(function) is EVENT_TYPES[tag]
    assert IN_ROUND["NodeCreated"] is effects.node_created


def test_the_tag_is_read_from_the_annotation_and_nowhere_else() -> None:
    def of_a_node(state: MemoryState, fact: Fact[NodeCreated]) -> None: ...

    def cause_created(state: MemoryState, fact: Fact[CauseCreated]) -> None: ...

    table = handlers(cause_created, of_a_node)
    assert table == {"CauseCreated": cause_created, "NodeCreated": of_a_node}
