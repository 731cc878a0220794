"""An event's id, its bytes and its hash: pure functions, against other ways to make them."""

import hashlib
import uuid
from dataclasses import make_dataclass
from datetime import datetime
from typing import Any

import pytest
from msgspec import structs

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.events import (
    Artifact,
    CheckpointEvaluated,
    DuplicateJudged,
    Embedder,
    RunConfigured,
    SimilarCause,
    StageCompleted,
)
from diagevo.memory.events.decode import decoded
from diagevo.memory.events.records import NAMESPACE, chain_hash, event_id, pending, wrapped
from tests.contracts.databases import Store
from tests.memory.play import candidate, first_round

ROW: tuple[Any, ...] = ("id", 2, 3, "T", 4, "c1", "{}", "e", "now", "0" * 64)


def test_an_event_id_is_a_uuid_of_version_5() -> None:
    assert event_id(1, "StageStarted", "solver.1") == str(uuid.uuid5(NAMESPACE, "StageStarted:1:solver.1"))


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
        ({5: None}, {5: ""}),
        ({7: None}, {7: ""}),
        ({0: "ab", 3: "c"}, {0: "a", 3: "bc"}),
        ({1: 1, 2: 23}, {1: 12, 2: 3}),
        ({6: "a", 7: "-:"}, {6: "a2:", 7: None}),
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
    near = SimilarCause(cause_id="c1", similarity=float("-inf"))
    judged = DuplicateJudged(failure_id="f", candidates=[], nearest=near, duplicate=False, cause_id=None)
    with pytest.raises(ConfigError, match=r"nearest\.similarity is -inf"):
        pending("a", 1, judged)


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


def test_the_chain_of_a_run_is_what_its_description_says(store: Store) -> None:
    """Made again from the columns alone, by other means: lengths, bars and colons put together by hand."""
    with store.open() as memory:
        first_round(memory, [("drops a carry – ½", "add", 2)])
    numbers, texts = "sequence, round, schema_version", "event_id, type, cause_id, payload, causation_id"
    asked = f"SELECT {numbers}, previous_hash, {texts}, recorded_at, hash FROM event ORDER BY sequence"
    head = b"0" * 64
    with store.log() as log, log.database.read() as connection:
        rows = connection.exec_driver_sql(asked).all()
        for *figures, previous, id_, type_, cause, payload, follows, when, hash_ in rows:
            assert previous.encode() == head
            told = b"".join(b"%d|" % figure for figure in figures)
            for part in (previous, id_, type_, cause, payload, follows, when):
                told += b"-:" if part is None else b"%d:%s" % (len(part), part.encode())
            head = hashlib.sha256(told).hexdigest().encode()
            assert head == hash_.encode()
        assert log.head("a").hash == head.decode()
    assert len(rows) > 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"responses": "12"}, "responses is '12': Expected `int`, got `str`"),
        ({"responses": True}, r"Expected `int`, got `bool`"),
        ({"first": 7.0}, r"Expected `int`, got `float`"),
        ({"verdict": "fine"}, "verdict is 'fine', not one of kept, too_easy"),
        ({"votes": [("a", "7")]}, r"at `\$\.votes\[0\]\[1\]`"),
        ({"label": datetime(2026, 1, 2)}, r"label is a datetime, which the log does not keep"),
        ({"label": b"4"}, r"label is a bytes"),
        ({"reference": "x"}, "reference is 'x', not the digest of a text"),
    ],
    ids=str,
)
def test_an_event_of_wrong_values_is_refused_and_nothing_is_made_to_fit(
    change: dict[str, Any], message: str
) -> None:
    event = structs.replace(candidate("r1.q0"), **change)
    with pytest.raises(ConfigError, match=message):
        pending("a", 1, event)


def test_what_is_folded_is_what_is_read_again() -> None:
    """A tuple for a list and a whole number for a float are written as the catalogue has them."""
    given: Any = (SimilarCause(cause_id="c1", similarity=1),)
    judged = DuplicateJudged("r1.q1.a0", given, None, duplicate=False, cause_id=None)
    kept, envelope = wrapped("a", 1, judged)
    assert kept == decoded("DuplicateJudged", 1, envelope.payload)
    assert '"candidates":[{"cause_id":"c1","similarity":1.0}]' in envelope.payload
    assert (type(kept.candidates), type(kept.candidates[0].similarity)) == (list, float)


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "../other", "rounds/../../b", "rounds/../writer.lock", ""),
        *("writer.lock", "chain-heads.jsonl", "config.json", "rounds", "rounds/", "./rounds/1", "rounds//1"),
        *("Rounds/1", "warm-start/../writer.lock", "warm-start.txt"),
    ],
)
def test_a_stage_leaves_files_in_rounds_alone(path: str) -> None:
    """Every other name in a run's folder is the program's own."""
    with pytest.raises(ValueError, match="is not a path in rounds/"):
        Artifact(path=path, sha256="0" * 64)


def test_a_stage_leaves_files_in_rounds_and_what_a_warm_start_writes() -> None:
    for path in ("rounds/001/solver", "rounds/1", "warm-start", "warm-start.jsonl"):
        assert Artifact(path=path, sha256="0" * 64).path == path


def test_a_field_that_an_event_does_not_have_is_damage() -> None:
    with pytest.raises(StoreError, match="unknown field `type`"):
        decoded("StageStarted", 1, '{"attempt":1,"stage":"solver","type":"StageStarted"}')
