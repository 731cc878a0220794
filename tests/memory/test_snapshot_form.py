"""A state as bytes: everything in it comes back, in its order, and bytes of another form are no state."""

from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy import select, update

from diagevo.equations.states import Tally
from diagevo.memory.events import Cause, Embedder, Node
from diagevo.memory.events.decode import UNREADABLE
from diagevo.memory.log.tables import SNAPSHOT
from diagevo.memory.state import projection
from diagevo.memory.state.model import Began, MemoryState, OpenRound
from tests.memory.play import first_round, opened


def _state() -> MemoryState:
    """Twelve causes, so that the order by name (c10 before c2) is another than that by number."""
    causes = {
        f"c{n}": Cause(f"c{n}", f"cause {n}", "n1", "active", n, 1, f"r1.q{n}.a0", promotion=None)
        for n in range(1, 13)
    }
    state = MemoryState("a", sequence=40, position=41, config={"b": 1, "a": {"x": [1.5, None]}})
    state.embedder, state.configurations = Embedder("e", 8, "r"), 2
    state.round, state.failures, state.reference_round, state.reference_failures = 3, 78, 1, 90
    state.epsilon = Fraction(13, 15)
    state.causes, state.nodes = causes, {"n1": Node("n1", "add", tuple(causes))}
    state.absorbed, state.refused = {"n2": ("n1", "sum")}, {"n1.n3": "f" * 64}
    state.next_cause, state.next_node = 13, 4
    state.began, state.superseded = (Began(3, "a" * 64, 1),), ((1, 2),)
    state.renamed = (("c2", "cause two"),)
    state.dismissals = 2
    state.assignments, state.promotions = 3, {"e": 2}
    state.votes = ({"c1": Tally(2, 18, 12)}, {})
    return state


def test_everything_in_a_state_comes_back_in_its_order() -> None:
    state = _state()
    unset = MemoryState("")
    assert [f.name for f in fields(state) if getattr(state, f.name) == getattr(unset, f.name)] == ["open"]
    back = projection.from_bytes(projection.to_bytes(state))
    assert back == state
    assert list(back.causes)[:3] == ["c1", "c2", "c3"]
    assert back.epsilon == Fraction(13, 15)
    assert isinstance(back.settings.k, Fraction)


def test_an_open_round_comes_back_too() -> None:
    state = _state()
    state.open = OpenRound(4, Fraction(1, 3), 7, 41, state.causes.copy(), state.nodes.copy())
    state.open.merging["n1.n3"] = None
    assert projection.from_bytes(projection.to_bytes(state)) == state


def test_equal_states_are_equal_bytes_whoever_wrote_the_configuration() -> None:
    one, other = _state(), _state()
    other.config = {"a": {"x": [1.5, None]}, "b": 1}
    assert projection.to_bytes(one) == projection.to_bytes(other)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b'["a",40,41,null,null,1,{},3,78,1,90,"13/15",[],[],{},{},13,4]',
        projection.to_bytes(_state()).replace(b'"13/15"', b'"1e99999999"'),
        projection.to_bytes(_state()).replace(b'"13/15"', b'"1/0"'),
    ],
)
def test_bytes_of_another_form_are_no_state(content: bytes) -> None:
    with pytest.raises(UNREADABLE):
        projection.from_bytes(content)


def test_a_snapshot_of_another_version_is_left_alone_and_the_events_say_the_state(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        first_round(memory, [("drops a carry", "add", 2)])
        expected = memory.state
        with memory.database.write() as connection:
            assert connection.execute(select(SNAPSHOT.c.version)).scalar_one() == projection.VERSION
            connection.execute(update(SNAPSHOT).values(version=1, state=b'["a",40]'))
    with opened(tmp_path) as memory:
        assert memory.state == expected
