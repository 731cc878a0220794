"""On random histories of every kind each column of each projection, and each of each published view, is what
plain Python makes of the events' payloads; on both databases, as written, imported, and made again."""

import json
import math
from collections import Counter
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.read.views import ABOUT
from diagevo.memory.state.projection import ALL
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.rebuilding import rebuild_projections
from tests.contracts.databases import Store
from tests.memory.play import candidate, failure, first_round, recurrence
from tests.memory.read.histories import histories
from tests.memory.read.oracle import Oracle, Row

JSON = {"invalid_reasons", "promoted_causes", "reactivated_causes", "tags", "votes", "parts", "metrics"}
JSON |= {"conditions", "findings"}
"""Columns that hold JSON, whose spelling a database may choose."""
SEEDS = (0, 2, 3, 4, 5)
"""Whose histories reach every table and view."""
LEFT = {"snapshot": {"version", "state"}}
"""The bytes of the state, which `verify` folds again."""


def wrong(connection: Connection, run: str, compared: Counter[str]) -> list[str]:
    """What the tables and views of a run have otherwise than its events give; `compared`: rows of each."""
    events = connection.execute(
        text("SELECT * FROM event WHERE run_id = :run ORDER BY sequence"), {"run": run}
    )
    stored = connection.execute(text("SELECT digest, content FROM artifact"))
    oracle = Oracle(list(events), {digest: bytes(content).decode() for digest, content in stored})
    tables, views = oracle.tables(), oracle.views()
    assert tables.keys() == {table.name for table in ALL}
    assert views.keys() == ABOUT.keys()
    found: list[str] = []
    for name, rows in (tables | views).items():
        there = connection.execute(text(f"SELECT * FROM {name} WHERE run_id = :run"), {"run": run})
        compared[name] += len(rows)
        found += _differences(name, [dict(row) for row in there.mappings()], rows)
    return found


def _differences(name: str, there: list[Row], right: list[Row]) -> list[str]:
    there = [{key: value for key, value in row.items() if key not in LEFT.get(name, ())} for row in there]
    rows, expected = (sorted(map(_plain, of), key=_order) for of in (there, right))
    if len(rows) != len(expected):
        return [f"{name} has {len(rows)} rows, not {len(expected)}"]
    return [
        f"{name}.{column} is {row.get(column)!r}, not {one.get(column)!r}: {row}"
        for row, one in zip(rows, expected, strict=True)
        for column in row.keys() | one.keys()
        if column not in row or column not in one or not _same(row[column], one[column])
    ]


def _plain(row: Row) -> Row:
    return {name: _value(value, is_json=name in JSON) for name, value in row.items()}


def _value(value: Any, is_json: bool) -> Any:
    match value:
        case str() if is_json:
            return json.loads(value)
        case bool():
            return int(value)
        case Decimal():
            return float(value)
        case _:
            return value


def _order(row: Row) -> str:
    """By what names a row: it stands in every one, and has no fractions."""
    names = ("position", "round", "batch", "step", "tag", "sample", "cause_id", "node_id", "question_id")
    names += ("question",)
    return repr([row[name] for name in names if name in row])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-12)
    return one == other


@pytest.mark.parametrize("seed", SEEDS)
def test_every_column_of_every_table_and_view_is_what_the_events_give(
    store: Store, tmp_path: Path, seed: int
) -> None:
    runs = histories(store, seed)
    compared = Counter[str]()
    with closing(Database(store.url)) as database:
        for run in tuple(runs):
            history, bundle = History(database, run, store.root), tmp_path / f"{run}.bundle"
            export_bundle(history, history.end, bundle)
            runs.append(import_bundle(bundle, database, f"{run}-again", root=store.root).run_id)
        for run in runs:
            with database.read() as connection:
                assert wrong(connection, run, compared) == []
            rebuild_projections(History(database, run))
            with database.read() as connection:
                assert wrong(connection, run, compared) == []
    assert min(compared.values()) > 0, compared


def test_a_tag_that_stands_twice_in_an_event_is_counted_once(store: Store) -> None:
    """As versions before wrote it."""
    histories(store, 0)
    compared = Counter[str]()
    store.rewrite(
        lambda row: row.payload.replace('"tags":["vowel"]', '"tags":["vowel","vowel"]'), run="ingested"
    )
    with closing(Database(store.url)) as database:
        rebuild_projections(History(database, "ingested"))
        with database.read() as connection:
            assert wrong(connection, "ingested", compared) == []
    assert compared["v_tag"] > 1


def test_causes_of_a_round_are_in_the_order_of_their_numbers(store: Store) -> None:
    """c2 before c10."""
    with store.open() as memory:
        first_round(memory, [(f"mistake {number}", f"skill {number}", 1) for number in range(10)])
        memory.open_round(2)
        memory.score([candidate("r2.q0", 9, cause="c10"), candidate("r2.q1", 9, cause="c2")])
        memory.observe([failure("r2.q0.a0"), failure("r2.q1.a0")])
        memory.diagnosed([recurrence(f"r2.q{n}.a0", f"c{10 - 8 * n}", memory=memory) for n in (0, 1)])
        memory.settle("r2.q0.a0")
        memory.settle("r2.q1.a0")
        memory.commit()
    with closing(Database(store.url)) as database, database.read() as connection:
        assert wrong(connection, "a", compared := Counter[str]()) == []
    assert compared["v_reactivation"] == 2
