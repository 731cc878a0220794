"""Bundles changed everywhere, a place at a time: an import is refused with exit code 2 or 5, or what came in
is whole. Never an error of ours, and never half a run.

`FUZZ_TIMES=N` changes N times as many places.
"""

import json
import os
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diagevo.errors import DiagEvoError
from diagevo.memory.audit.verify import verify
from diagevo.memory.history import open_history
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.transfer.bundle import check_bundle, export_bundle, import_bundle
from tests.contracts.databases import SQLiteStores, Store
from tests.memory.audit.forging import Rows, forge_events, rows_of, write_rows

pytestmark = pytest.mark.slow

TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
OTHERS: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**62, 0.5, "", "x", "c1", "\0", "é" * 3, b"", b"\xff", [], {}, [[[[1]]]],
)  # fmt: skip
CELLS = tuple(other for other in OTHERS if not isinstance(other, list | dict))


@pytest.fixture(scope="module")
def exported(played_sqlite: Store, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A bundle of two rounds."""
    history = open_history(played_sqlite.url, "played")
    file = tmp_path_factory.mktemp("exported") / "out"
    export_bundle(history, history.as_of(2), file)
    history.close()
    return file.read_bytes()


@pytest.fixture(scope="module")
def target(sqlite_stores: SQLiteStores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    database = Database(sqlite_stores.new(tmp_path_factory.mktemp("target")).url)
    yield database
    database.close()


def outcome(bundle: Path, target: Database, name: str, root: Path) -> bool:
    """Whether the bundle was taken, and whether the check alone says so too. An error that is not one of ours
    fails the test."""
    before = Log(target).runs()
    try:
        import_bundle(bundle, target, name, root=root)
    except DiagEvoError as error:
        refusal = error
    else:
        check_bundle(bundle)
        return True
    with pytest.raises(DiagEvoError):
        check_bundle(bundle)
    assert refusal.exit_code in (2, 5), refusal
    assert refusal.hint
    assert Log(target).runs() == before
    return False


def test_no_changed_byte_breaks_an_import(exported: bytes, target: Database, tmp_path: Path) -> None:
    """What comes in has the chain of the original and texts of their digests: other figures of a vector, and
    bytes that nothing reads, are the most that a change can do."""
    draw, bundle, taken = random.Random("bytes"), tmp_path / "bundle", 0
    for case in range(60 * TIMES):
        content = bytearray(exported)
        at = draw.randrange(len(content) if case % 3 else 4096)
        match draw.randrange(3):
            case 0:
                content[at] ^= 1 << draw.randrange(8)
            case 1:
                content[at] = draw.randrange(256)
            case _:
                del content[at : at + draw.randrange(1, 9)]
        bundle.write_bytes(content)
        run = f"bytes-{case}"
        if outcome(bundle, target, run, tmp_path):
            taken += 1
            report = verify(Log(target), run, tmp_path / run, deep=True)
            assert (report.faults, report.events) == ([], 78)
    assert taken < 50 * TIMES


def test_no_cell_of_another_value_breaks_an_import(exported: bytes, target: Database, tmp_path: Path) -> None:
    """Each column of each table, behind the types of its columns."""
    draw, bundle = random.Random(5), tmp_path / "bundle"
    for table in ("run", "event", "artifact", "vector"):
        bundle.write_bytes(exported)
        rows = rows_of(bundle, table)
        for column in rows[0]:
            for other in draw.sample(CELLS, min(len(CELLS), 3 * TIMES)):
                place = draw.randrange(min(len(rows), 20))
                if rows[place][column] == other or column in ("created_at", "imported", "position"):
                    continue
                bundle.write_bytes(exported)
                changed = [row if at != place else row | {column: other} for at, row in enumerate(rows)]
                try:
                    write_rows(bundle, table, changed)
                except sqlite3.IntegrityError:  # two of a key
                    continue
                assert not outcome(bundle, target, "cell", tmp_path), (table, column, other)


def test_no_changed_payload_breaks_an_import_though_its_chain_was_hashed_again(
    exported: bytes, target: Database, tmp_path: Path
) -> None:
    """Each key of a payload of each type, with another value. What the fold cannot tell from what was played
    (a name) comes in; the rest is refused."""
    draw, bundle = random.Random(6), tmp_path / "bundle"
    bundle.write_bytes(exported)
    rows = rows_of(bundle, "event")
    places = {row["type"]: at for at, row in enumerate(rows)}
    for type_, place in sorted(places.items()):
        payload = json.loads(rows[place]["payload"])
        for key in payload:
            for other in draw.sample(OTHERS, min(len(OTHERS), TIMES)):
                if isinstance(other, bytes):
                    continue

                def change(changed: Rows, new: Any = payload | {key: other}) -> None:
                    changed[place]["payload"] = json.dumps(new)  # noqa: B023  (called in this turn)

                bundle.write_bytes(exported)
                forge_events(bundle, change)
                outcome(bundle, target, f"{type_}-{key}-{draw.random()}"[:60], tmp_path)
