"""Bundles changed everywhere, a place at a time: an import is refused with exit code 2 or 5, or what came in
is whole. Never an error of ours, and never half a run.

`FUZZ_TIMES=N` changes N times as many places.
"""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diagevo.errors import DiagEvoError
from diagevo.memory.audit.history import open_history
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.bundle_files import Form
from tests.contracts.databases import SQLiteStores, Store
from tests.memory_audit.forging import forge_events, rows_of, sign, write_parquet, write_rows

pytestmark = pytest.mark.slow

TIMES = int(os.environ.get("FUZZ_TIMES", "1"))
FORMS: tuple[Form, ...] = ("jsonl", "parquet")
OTHERS: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63, 10**400, 0.5, "", "x", "c1", "\0", "\ud800", "é" * 3, [], {}, [[[[1]]]],
)  # fmt: skip


@pytest.fixture(scope="module")
def bundles(played_sqlite: Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Form -> file -> content, of two rounds."""
    history = open_history(played_sqlite.url, "played")
    found = {}
    for form in FORMS:
        folder = tmp_path_factory.mktemp(form) / "out"
        export_bundle(history, history.as_of(2), folder, form)
        found[form] = {file.name: file.read_bytes() for file in folder.iterdir()}
    history.close()
    return found


@pytest.fixture(scope="module")
def target(sqlite_stores: SQLiteStores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    database = Database(sqlite_stores.new(tmp_path_factory.mktemp("target")).url)
    yield database
    database.close()


def laid_out(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def outcome(folder: Path, target: Database, name: str) -> bool:
    """Whether the bundle was taken. An error that is not one of ours fails the test."""
    before = Log(target).runs()
    try:
        import_bundle(folder, target, name)
    except DiagEvoError as error:
        refusal = error
    else:
        return True
    assert refusal.exit_code in (2, 5), refusal
    assert refusal.hint
    assert Log(target).runs() == before
    return False


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("signed", [False, True])
def test_no_changed_byte_breaks_an_import(
    bundles: dict[str, dict[str, bytes]], target: Database, tmp_path: Path, form: Form, signed: bool
) -> None:
    """Without the manifest's agreement each is refused; with it what comes in has the chain of the original,
    and texts of their digests: other figures of a vector are the most that a change can do."""
    draw, files = random.Random(f"{form}{signed}"), bundles[form]
    names = sorted(name for name in files if signed <= (name != "manifest.json"))
    manifest = json.loads(files["manifest.json"])
    folder = laid_out(tmp_path / "bundle", files)
    taken = 0
    for case in range(30 * TIMES):
        name = names[case % len(names)]
        content = bytearray(files[name])
        if not content:
            continue
        at = draw.randrange(len(content))
        match draw.randrange(3):
            case 0:
                content[at] ^= 1 << draw.randrange(8)
            case 1:
                content[at] = draw.randrange(256)
            case _:
                del content[at : at + draw.randrange(1, 9)]
        (folder / name).write_bytes(content)
        if signed:
            sign(folder, name, manifest["files"][name]["rows"])
        run = f"{form}-{signed}-{case}"
        if outcome(folder, target, run):
            taken += 1
            assert signed or name == "manifest.json" or bytes(content) == files[name]
            assert Log(target).head(run).sequence == manifest["events"]
        laid_out(folder, files)
    assert taken < 15 * TIMES


def test_no_cell_of_another_type_breaks_an_import(
    bundles: dict[str, dict[str, bytes]], target: Database, tmp_path: Path
) -> None:
    """Each column of each file, with each other value, in JSON lines and in Parquet; a chain is hashed again
    where its values can be."""
    draw, files = random.Random(5), bundles["jsonl"]
    folder, parquet = tmp_path / "bundle", tmp_path / "parquet"
    laid_out(parquet, bundles["parquet"])
    for kind in ("events", "texts", "vectors"):
        laid_out(folder, files)
        rows = rows_of(folder, kind)
        for column in rows[0]:
            for other in draw.sample(OTHERS, min(len(OTHERS), 3 * TIMES)):
                place = draw.randrange(min(len(rows), 20))
                if rows[place][column] == other:
                    continue
                changed = [row if at != place else row | {column: other} for at, row in enumerate(rows)]
                try:
                    write_rows(folder, kind, changed)
                except UnicodeEncodeError:  # half a surrogate pair cannot be written
                    continue
                assert not outcome(folder, target, "cell"), (kind, column, other)
        for other in draw.sample(OTHERS, min(len(OTHERS), 6 * TIMES)):
            column = draw.choice(list(rows[0]))
            try:
                write_parquet(parquet, kind, [row | {column: other} for row in rows])
            except (ValueError, OverflowError, TypeError, NotImplementedError):  # Arrow has no such value
                continue
            assert not outcome(parquet, target, "cell"), (kind, column, other)
        laid_out(parquet, bundles["parquet"])


def test_no_changed_payload_breaks_an_import_though_its_chain_was_hashed_again(
    bundles: dict[str, dict[str, bytes]], target: Database, tmp_path: Path
) -> None:
    """Each key of a payload of each type, with another value. What the fold cannot tell from what was played
    (a text's digest, a name) comes in; the rest is refused."""
    draw, files = random.Random(6), bundles["jsonl"]
    folder = laid_out(tmp_path / "bundle", files)
    rows = rows_of(folder, "events")
    places = {row["type"]: at for at, row in enumerate(rows)}
    for type_, place in sorted(places.items()):
        payload = json.loads(rows[place]["payload"])
        for key in payload:
            for other in draw.sample(OTHERS, min(len(OTHERS), TIMES)):

                def change(changed: list[dict[str, Any]], new: Any = payload | {key: other}) -> None:
                    changed[place]["payload"] = json.dumps(new)  # noqa: B023  (called in this turn)

                laid_out(folder, files)
                forge_events(folder, change)
                outcome(folder, target, f"{type_}-{key}-{draw.random()}"[:60])
