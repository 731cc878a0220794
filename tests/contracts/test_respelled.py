"""One event, one truth: what the fold reads of a payload is what every view shows of it, or it is refused.

Two readers look at the same bytes: this program's decoder, and the JSON functions of the database under the
views. Where JSON allows a second spelling, they may differ (of a key given twice the decoder takes the last,
SQLite the first).
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import convert, structs, to_builtins
from sqlalchemy import Connection, insert

from diagevo.errors import ConfigError, DamagedError, StoreError
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import (
    Artifact,
    CandidateScored,
    CauseMatched,
    CausePromoted,
    CauseReactivated,
    CheckpointEvaluated,
    Digest,
    Event,
    FailureDiagnosed,
    FailureObserved,
    GroupIngested,
    IdGiven,
    PhaseMeasured,
    Ratio,
    RoundsSuperseded,
    StageAbandoned,
    StageCompleted,
    Value,
)
from diagevo.memory.events.decode import decoded, read
from diagevo.memory.events.records import Recorded, payload_of
from diagevo.memory.history import open_history
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.log.database import Database
from diagevo.memory.log.statements import INSERT
from diagevo.memory.state.projection import GROUP, OPENED, group_row
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.memory.audit.forging import Rows, forge_events

PLACES = count(1)
VIEWS: dict[type[Event], tuple[str, dict[str, str]]] = {
    CandidateScored: ("v_candidate", {}),
    FailureObserved: ("v_failure", {"right_answer": "right"}),
    FailureDiagnosed: ("v_diagnosis", {}),
    IdGiven: ("v_own_id", {}),
    CauseMatched: ("v_match", {}),
    CausePromoted: ("v_promotion", {}),
    CauseReactivated: ("v_reactivation", {}),
    GroupIngested: ("v_group", {"place": "group"}),
    RoundsSuperseded: ("v_superseded", {}),
    StageCompleted: ("v_stage", {}),
    StageAbandoned: ("v_stage", {}),
    PhaseMeasured: ("v_phase", {}),
    CheckpointEvaluated: ("v_checkpoint", {}),
}
"""The view that shows an event of a type, a row each, and the columns that do not have their field's name."""


def _values(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of a field, as JSON has them. PostgreSQL has no subnormal numbers: its views would raise."""
    if annotation == Digest:
        return st.sampled_from(["0" * 64, "5e" * 32])
    if annotation == Artifact:
        path = st.sampled_from(["rounds/001/solver", "warm-start"])
        return st.fixed_dictionaries({"path": path, "sha256": st.just("5e" * 32)})
    if annotation == Ratio:
        return st.sampled_from(["0", "1/3", "1"])
    if hasattr(annotation, "__metadata__"):
        [meta] = annotation.__metadata__
        kind = annotation.__origin__
        if kind is int:
            return st.integers(meta.ge, min(meta.le or 9, 2**31 - 1))
        return st.floats(meta.ge, meta.le or 1e12, allow_subnormal=False) if kind is float else _values(kind)
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return _payloads(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list or Ellipsis in arguments:
        return st.lists(_values(arguments[0]), max_size=2)
    if origin is tuple:
        return st.tuples(*map(_values, arguments)).map(list)
    if origin is dict:
        return st.dictionaries(st.text(max_size=3), _values(arguments[1]), max_size=2)
    if arguments and isinstance(arguments[0], str):
        return st.sampled_from(arguments)
    if arguments:
        return st.one_of(*map(_values, arguments))
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(max_size=4),
        int: st.integers(-9, 9),
        float: st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False),
        bool: st.booleans(),
        type(None): st.none(),
        Any: st.none(),
    }
    return plain[annotation]


@cache
def _payloads(part: type[Value]) -> st.SearchStrategy[dict[str, Any]]:
    hints = get_type_hints(part, include_extras=True)
    return st.fixed_dictionaries({name: _values(hints[name]) for name in part.__struct_fields__})


def _twice(text: str, draw: st.DrawFn) -> str:
    key = draw(st.sampled_from(sorted(json.loads(text))))
    return f'{{"{key}":{draw(st.sampled_from(["0", "null", _value_of(text, key)]))},{text[1:]}'


def _value_of(text: str, key: str) -> str:
    return json.dumps(json.loads(text)[key])


def _escaped(text: str, draw: st.DrawFn) -> str:
    place = draw(st.sampled_from([m.start() for m in re.finditer("[a-z]", text)]))
    return f"{text[:place]}\\u{ord(text[place]):04x}{text[place + 1 :]}"


def _blank(text: str, draw: st.DrawFn) -> str:
    place = draw(st.sampled_from([m.start() for m in re.finditer(r"[{}\[\],:]|^", text)]))
    return text[:place] + draw(st.sampled_from([" ", "\n", "\t"])) + text[place:]


def _number(text: str, draw: st.DrawFn) -> str:
    found = list(re.finditer(r"(?<=[:,\[])\d+(?=[,}\]])", text))
    if not found:
        return text
    number = draw(st.sampled_from(found))
    again = draw(
        st.sampled_from(["-0", f"{number[0]}.0", f"{number[0]}e0", f"0{number[0]}", f"+{number[0]}"])
    )
    return text[: number.start()] + again + text[number.end() :]


def _omitted(text: str, draw: st.DrawFn) -> str:
    values = json.loads(text)
    del values[draw(st.sampled_from(sorted(values)))]
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _reordered(text: str, draw: st.DrawFn) -> str:
    pairs = draw(st.permutations(list(json.loads(text).items())))
    return json.dumps(dict(pairs), separators=(",", ":"), ensure_ascii=False)


def _ascii(text: str, draw: st.DrawFn) -> str:
    return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


def _as_written(text: str, draw: st.DrawFn) -> str:
    return text


SPELLINGS = (_twice, _escaped, _blank, _number, _omitted, _reordered, _ascii, _as_written)


@st.composite
def _spelled(draw: st.DrawFn) -> tuple[type[Event], str, str]:
    """A type, a payload of it, and the same spelled in another way, or as it is."""
    kind = draw(st.sampled_from(sorted(VIEWS, key=lambda one: one.__name__)))
    values = draw(_payloads(kind))
    try:
        payload = payload_of(convert(values, kind))
    except ConfigError:  # a NUL in a text: the memory writes something else
        payload = payload_of(convert(json.loads(json.dumps(values).replace("\\u0000", "0")), kind))
    return kind, payload, draw(st.sampled_from(SPELLINGS))(payload, draw)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    if request.param == "sqlite":
        stores: SQLiteStores | PostgresStores = request.getfixturevalue("sqlite_stores")
    else:
        stores = PostgresStores(request.getfixturevalue("postgres_server"))
    with closing(Database(stores.new(tmp_path_factory.mktemp("views")).url)) as found:
        yield found


@given(events=st.lists(_spelled(), min_size=8, max_size=16))
@settings(max_examples=25, phases=(Phase.explicit, Phase.generate))
def test_the_fold_reads_what_each_view_shows_or_the_event_is_refused(
    database: Database, events: list[tuple[type[Event], str, str]]
) -> None:
    taken: list[tuple[type[Event], str]] = []
    for kind, payload, spelled in events:
        try:
            read(kind.__name__, kind.schema_version, spelled)
            taken.append((kind, spelled))
        except DamagedError:
            assert spelled != payload, "what was written is read"
    with database.write() as connection:
        for kind, payload in taken:
            place = next(PLACES)
            event = decoded(kind.__name__, kind.schema_version, payload)
            connection.execute(INSERT, _row(place, kind, payload))
            opened = {"run_id": "views", "round": place, "batch": place, "position": place}
            connection.execute(insert(OPENED), opened)
            if isinstance(event, GroupIngested):
                connection.execute(insert(GROUP), group_row("views", place, place, event))
            shown, said = _both(connection, place, event)
            assert shown == said


def _row(place: int, kind: type[Event], payload: str) -> dict[str, Any]:
    row = Recorded(
        position=place,
        event_id=f"e{place}",
        run_id="views",
        sequence=place,
        round=place,
        type=kind.__name__,
        schema_version=kind.schema_version,
        cause_id=json.loads(payload).get("cause_id"),
        payload=payload,
        causation_id=None,
        recorded_at="2026-01-01T00:00:00.000000+00:00",
        previous_hash="",
        hash="",
    )
    return structs.asdict(row)


def _both(connection: Connection, place: int, event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of the view's row that show fields of the event, and those fields."""
    view, others = VIEWS[type(event)]
    query = f"SELECT * FROM {view} WHERE run_id = 'views' AND position = {place}"
    row = connection.exec_driver_sql(query).mappings().one()
    fields: dict[str, Any] = to_builtins(event)
    names = {column: others.get(column, column) for column in row if others.get(column, column) in fields}
    assert len(names) >= min(3, len(fields))
    shown = {name: row[column] for column, name in names.items()}
    said = {name: fields[name] for name in names.values()}
    for name in NESTED & shown.keys():
        shown[name], said[name] = json.loads(shown[name]), json.loads(json.dumps(said[name]))
    return shown, {name: int(value) if isinstance(value, bool) else value for name, value in said.items()}


NESTED = {"votes", "parts", "findings", "conditions", "metrics"}
"""Columns that hold JSON."""
NAMES = ("question_id", "failure_id")
"""What the texts of the played run are."""
FIVE: dict[str, Callable[[str], str]] = {
    "a key twice": lambda text: text.replace('"first":', '"first":0,"first":'),
    "an escaped key": lambda text: text.replace('"first":', '"\\u0066irst":'),
    "a leading blank": lambda text: f" {text}",
    "minus zero": lambda text: text.replace('"undecided":0', '"undecided":-0'),
    "an omitted default": lambda text: text.replace('"undecided":0,', ""),
}


@pytest.mark.parametrize("spell", FIVE.values(), ids=FIVE)
def test_a_payload_that_is_spelled_in_another_way_is_found_and_named(
    played: Store, spell: Callable[[str], str]
) -> None:
    def respelled(record: Recorded) -> str:
        return spell(record.payload) if record.type == "CandidateScored" else record.payload

    played.rewrite(respelled)
    with played.log() as log:
        [first, *_] = log.read("a", types=["CandidateScored"])
        faults = [f for f in verify(log, "a", played.root / "a").faults if f.check == "replay"]
        assert [(f.position, f.event_id) for f in faults] == [(first.position, first.event_id)]
        assert "the payload of an event CandidateScored cannot be read: it is not as it" in faults[0].message


@pytest.mark.parametrize("spell", FIVE.values(), ids=FIVE)
def test_a_bundle_whose_payload_is_spelled_in_another_way_is_refused_whole(
    played: Store, tmp_path: Path, spell: Callable[[str], str]
) -> None:
    def respelled(rows: Rows) -> None:
        row = next(row for row in rows if row["type"] == "CandidateScored")
        row["payload"] = spell(row["payload"])

    history = open_history(played.url, "a", root=played.root)
    named = {getattr(fact.event, name, "reference") for fact in history.log.facts("a") for name in NAMES}
    Artifacts(history.database).put_many(sorted(named))
    export_bundle(history, history.end, tmp_path / "bundle")
    with closing(history.database) as database:
        import_bundle(tmp_path / "bundle", database, "whole", root=tmp_path)
        forge_events(tmp_path / "bundle", respelled)
        with pytest.raises(StoreError, match=r"event 3 of the bundle .* it is not as it would be written"):
            import_bundle(tmp_path / "bundle", database, "forged", root=tmp_path)
        assert history.log.runs() == ["a", "whole"]


def test_an_old_payload_is_what_its_own_version_would_have_written() -> None:
    """FailureObserved had no `right` in version 1 and no `against` in version 2."""
    observed = (
        '{"attempt":1,"failure_id":"r1.q0.a0","question_id":"r1.q0","reference":"%s",%s'
        '"stage":"solver","step":1,"trajectory":"%s"}'
    )
    one, two = (observed % ("5" * 64, more, "7" * 64) for more in ("", '"right":true,'))
    assert read("FailureObserved", 1, one) == read("FailureObserved", 2, two.replace("true", "null"))
    assert getattr(read("FailureObserved", 2, two), "right", None) is True
    for version, payload in (
        *(
            (1, text)
            for text in (two, one.replace(":1", ":-0"), f" {one}", one.replace("step", "st\\u0065p"))
        ),
        *((2, text) for text in (one, two.replace('{"', '{"against":"answer","'), two.replace(":1", ": 1"))),
        (1, one.replace('{"', '{"attempt":2,"')),
    ):
        with pytest.raises(DamagedError):
            read("FailureObserved", version, payload)
