"""An event's id, its bytes and its hash: pure functions, against other ways to make them."""

import uuid
from dataclasses import make_dataclass
from typing import Any

import pytest

from diagevo.errors import ConfigError
from diagevo.memory.events import CheckpointEvaluated, Embedder, RunConfigured, StageCompleted
from diagevo.memory.events.records import NAMESPACE, chain_hash, event_id, pending

ROW: tuple[Any, ...] = (1, "id", "run", 2, 3, "T", 4, "c1", "{}", "e", "now", "0" * 64)


def test_an_event_id_is_a_uuid_of_version_5() -> None:
    by_the_library = uuid.uuid5(uuid.uuid5(NAMESPACE, "a"), "StageStarted:1:solver.1")
    assert event_id("a", 1, "StageStarted", "solver.1") == str(by_the_library)


def _changed(changes: dict[int, Any]) -> tuple[Any, ...]:
    return tuple(changes.get(place, value) for place, value in enumerate(ROW))


@pytest.mark.parametrize("place", range(len(ROW)))
def test_every_place_of_a_row_is_under_its_hash(place: int) -> None:
    value = ROW[place]
    other = value + 1 if isinstance(value, int) else f"{value}x"
    assert chain_hash(*_changed({place: other})) != chain_hash(*ROW)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({7: None}, {7: ""}),
        ({9: None}, {9: ""}),
        ({2: "ab", 5: "c"}, {2: "a", 5: "bc"}),
        ({0: 1, 3: 23}, {0: 12, 3: 3}),
        ({8: "a", 9: "-:"}, {8: "a2:", 9: None}),
    ],
    ids=str,
)
def test_no_two_rows_have_one_hash_because_a_text_ends_elsewhere(
    one: dict[int, Any], other: dict[int, Any]
) -> None:
    assert chain_hash(*_changed(one)) != chain_hash(*_changed(other))


def test_a_number_that_is_not_finite_is_found_wherever_it_stands() -> None:
    embedder = Embedder(name="n", dimension=1, revision="")
    configured = RunConfigured(config={"x": float("inf")}, models={}, embedder=embedder, version="0")
    with pytest.raises(ConfigError, match=r"config\.x is inf"):
        pending("a", 1, configured)
    completed = StageCompleted(stage="s", attempt=1, artifacts=[], seconds=float("nan"))
    with pytest.raises(ConfigError, match="seconds is nan"):
        pending("a", 1, completed)


NAN = float("nan")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({NAN}, "is a set, which the log does not keep"),
        (frozenset([NAN]), "is a frozenset"),
        (make_dataclass("Point", ["x"])(NAN), "is a Point"),
        (iter([1]), "is a list_iterator"),
        ({NAN: 1}, "has the key nan"),
        ({1: 2}, "has the key 1"),
        ([[1.0, NAN]], r"t\[0\]\[1\] is nan"),
    ],
    ids=["set", "frozenset", "dataclass", "iterator", "key of a number that is none", "key", "inner"],
)
def test_what_json_does_not_have_is_refused_and_not_kept_as_something_else(value: Any, message: str) -> None:
    event = CheckpointEvaluated(
        role="solver", checkpoint="x", benchmark="b", questions=1, conditions={"t": value}, metrics={}
    )
    with pytest.raises(ConfigError, match=message):
        pending("a", 1, event)
