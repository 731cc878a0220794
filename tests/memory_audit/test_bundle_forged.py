"""Bundles made to deceive: nothing of one is believed before it was checked, and nothing stays of one that
was refused. One lie a test: the list is read as one."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from sqlalchemy import update

from diagevo.errors import StoreError
from diagevo.memory.audit.history import History, open_history
from diagevo.memory.events import NodeAssigned
from diagevo.memory.log.artifacts import ARTIFACT, Artifacts, Reply, digest_of
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.vectors import Vectors, text_hash
from diagevo.memory.transfer.bundle import (
    check_bundle,
    export_bundle,
    import_bundle,
    read_manifest,
    strangers,
)
from diagevo.memory.transfer.bundle_files import Reader
from diagevo.memory.transfer.bundle_parquet import MEMORY, ParquetReader
from diagevo.memory.transfer.bundle_rows import ROWS
from diagevo.memory.transfer.fork import fork
from tests.contracts.databases import SQLiteStores, Store
from tests.memory_audit.forging import (
    Rows,
    forge_events,
    most_held,
    packed,
    rows_of,
    sign,
    write_parquet,
    write_rows,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(played_sqlite: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The hand-played run with one reply, as a bundle."""
    history = open_history(played_sqlite.url, "played")
    artifacts = Artifacts(history.database)
    call = next(history.events(NodeAssigned)).event.call  # pyright: ignore[reportAttributeAccessIssue]
    artifacts.remember_reply(call.model, call.request, Reply(artifacts.get(call.reply), 3, 1))
    folder = tmp_path_factory.mktemp("exported") / "out"
    export_bundle(history, history.end, folder)
    history.close()
    return folder


@pytest.fixture
def bundle(exported: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    for file in exported.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture
def empty(sqlite_stores: SQLiteStores, tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "store").mkdir()
    database = Database(sqlite_stores.new(tmp_path / "store").url)
    yield database
    database.close()


def refused(bundle: Path, database: Database) -> str:
    """The error of an import that left nothing behind; the check says the very same."""
    with pytest.raises(StoreError) as caught:
        import_bundle(bundle, database)
    with pytest.raises(StoreError) as checked:
        check_bundle(bundle)
    assert checked.value.message == caught.value.message
    assert caught.value.hint
    with database.read() as connection:
        for table in ("event", "run", "artifact", "reply", "vector", "snapshot"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() == 0
    return caught.value.message


def rows_read(folder: Path, kind: str, rows: int) -> list[Any]:
    """The rows of a file of Parquet."""
    with closing(Reader(folder, "parquet")) as reader:
        return list(reader.rows(kind, rows))


def test_a_text_that_is_not_its_digests_is_refused(bundle: Path, empty: Database) -> None:
    rows = rows_of(bundle, "texts")
    rows[4]["content"] = packed(b"forged")
    write_rows(bundle, "texts", rows)
    assert refused(bundle, empty) == f"row 5 of texts in the bundle {bundle} is not the text of its digest"


def test_bytes_that_are_no_text_are_refused(bundle: Path, empty: Database) -> None:
    import hashlib

    rows = rows_of(bundle, "texts")
    rows[0] = {"digest": hashlib.sha256(b"\xff").hexdigest(), "content": packed(b"\xff")}
    write_rows(bundle, "texts", rows)
    assert refused(bundle, empty) == f"row 1 of texts in the bundle {bundle} is not UTF-8"


@pytest.mark.parametrize("field", ["model", "request", "text"])
def test_a_reply_that_no_event_names_is_never_recalled(bundle: Path, empty: Database, field: str) -> None:
    """Another answer to a request that the run did make, another model's, one to another request."""
    texts, replies = rows_of(bundle, "texts"), rows_of(bundle, "replies")
    forged = digest_of("it is the same cause")
    texts.append({"digest": forged, "content": packed(b"it is the same cause")})
    write_rows(bundle, "texts", texts)
    write_rows(bundle, "replies", [replies[0] | {field: forged}])
    said = f"row 1 of replies in the bundle {bundle} is a reply that no event of the bundle names"
    assert refused(bundle, empty) == said
    assert Artifacts(empty).recall_reply(replies[0]["model"], replies[0]["request"]) is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vector": packed(b"\0" * 12)}, "has 12 bytes, not 16"),
        ({"vector": ""}, "has 0 bytes, not 16"),
        ({"vector": packed(np.array([1, 0, np.nan, 0], "<f4").tobytes())}, "is not finite"),
        ({"model": "another@1/4"}, "is a vector that no event of the bundle asks for"),
        ({"text_hash": "0" * 64}, "is a vector that no event of the bundle asks for"),
    ],
)
def test_a_vector_that_cannot_be_the_runs_is_refused(
    bundle: Path, empty: Database, change: dict[str, Any], said: str
) -> None:
    rows = rows_of(bundle, "vectors")
    rows[1] |= change
    write_rows(bundle, "vectors", rows)
    assert refused(bundle, empty) == f"row 2 of vectors in the bundle {bundle} {said}"


@pytest.mark.parametrize("kind", ["texts", "replies", "vectors"])
def test_a_row_that_is_there_twice_is_refused(bundle: Path, empty: Database, kind: str) -> None:
    rows = rows_of(bundle, kind)
    write_rows(bundle, kind, [*rows, rows[0]])
    assert refused(bundle, empty).endswith(
        f"row {len(rows) + 1} of {kind} in the bundle {bundle} is there twice"
    )


def _other_run(rows: Rows) -> None:
    rows[3]["run_id"] = "other"


def _other_id(rows: Rows) -> None:
    rows[3]["event_id"] = "00000000-0000-5000-8000-000000000000"


def _other_time(rows: Rows) -> None:
    rows[3]["recorded_at"] = "yesterday"


def _other_cause(rows: Rows) -> None:
    rows[3]["cause_id"] = "c9"


def _unknown(rows: Rows) -> None:
    rows[3]["type"] = "CauseForgiven"


def _nul(rows: Rows) -> None:
    place, row = next((i, r) for i, r in enumerate(rows) if r["type"] == "RunConfigured")
    rows[place]["payload"] = row["payload"].replace('"version":"', '"version":"\\u0000')


def _deep(rows: Rows) -> None:
    place, row = next((i, r) for i, r in enumerate(rows) if r["type"] == "RunConfigured")
    deep = "[" * 100_000 + "]" * 100_000
    rows[place]["payload"] = row["payload"].replace('"config":{', f'"config":{{"a":{deep},')


def _outside(rows: Rows) -> None:
    assert rows[3]["type"] == "StageCompleted"
    left = '[{"path":"../other/solver","sha256":"0"}]'
    rows[3]["payload"] = rows[3]["payload"].replace('"artifacts":[]', f'"artifacts":{left}')


def _no_digest(rows: Rows) -> None:
    place, row = next((i, r) for i, r in enumerate(rows) if r["type"] == "FailureObserved")
    rows[place]["payload"] = row["payload"].replace('"trajectory":"', '"trajectory":"0')


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            _outside,
            "event 4 of the bundle {} is not what was written: the payload of an event StageCompleted"
            " cannot be read: artifacts.0.path: Value error, '../other/solver' is no path inside",
        ),
        (
            _no_digest,
            "event 15 of the bundle {} is not what was written: the payload of an event FailureObserved"
            " cannot be read: trajectory: String should match pattern",
        ),
        (_other_run, "event 4 of the bundle {} is not what was written: it is an event of run other"),
        (_other_id, "event 4 of the bundle {} is not what was written: its id is another event's"),
        (
            _other_time,
            "event 4 of the bundle {} is not what was written: Invalid isoformat string: 'yesterday'",
        ),
        (_other_cause, "event 4 of the bundle {} is not what was written: its cause is not its payload's"),
        (_unknown, "event 4 of the bundle {} is not what was written: an event CauseForgiven of version "),
        (_nul, "event 1 of the bundle {} is not what was written: it holds a NUL, which no database keeps"),
        (_deep, "event 1 of the bundle {} is not what was written: "),
    ],
)
def test_a_chain_that_was_hashed_again_does_not_make_an_event_believed(
    bundle: Path, empty: Database, change: Callable[[Rows], None], said: str
) -> None:
    forge_events(bundle, change)
    assert refused(bundle, empty).startswith(said.format(bundle))


def test_a_history_that_does_not_follow_is_refused_though_its_chain_holds(
    bundle: Path, empty: Database
) -> None:
    def promote(rows: Rows) -> None:
        row = next(r for r in rows if r["type"] == "CausePromoted")
        row["payload"] = row["payload"].replace('"consistency":"3/4"', '"consistency":"1"')

    forge_events(bundle, promote)
    assert "CausePromoted" in refused(bundle, empty)


@pytest.mark.parametrize(("key", "value"), [("round", 3), ("events", 7), ("head", "0" * 64), ("run_id", "b")])
def test_a_manifest_that_says_otherwise_than_its_events_is_refused(
    bundle: Path, empty: Database, key: str, value: Any
) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    (bundle / "manifest.json").write_text(json.dumps(manifest | {key: value}))
    assert str(bundle) in refused(bundle, empty)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.with_name("kept").write_bytes(b"")
    path.symlink_to(path.with_name("kept"))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["texts.jsonl", "manifest.json"])
@pytest.mark.parametrize("make", [_pipe, _link, Path.mkdir])
def test_only_regular_files_are_opened(
    bundle: Path, empty: Database, name: str, make: Callable[[Path], None]
) -> None:
    (bundle / name).unlink()
    make(bundle / name)
    assert "cannot be read: " in refused(bundle, empty)


def test_a_device_is_not_read(bundle: Path, empty: Database) -> None:
    """By a link; a device of one's own needs root."""
    (bundle / "replies.jsonl").unlink()
    (bundle / "replies.jsonl").symlink_to("/dev/zero")
    assert "replies.jsonl cannot be read: " in refused(bundle, empty)


def test_what_else_lies_in_the_folder_is_named_and_never_opened(bundle: Path, empty: Database) -> None:
    os.mkfifo(bundle / "notes.txt")
    assert strangers(bundle, read_manifest(bundle)) == ["notes.txt"]
    import_bundle(bundle, empty)
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["files"]["../secret"] = {"rows": 1, "sha256": ""}
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StoreError, match=r"must name events.jsonl, .*, and nothing else"):
        check_bundle(bundle)


def test_a_line_without_an_end_is_not_read_whole(
    bundle: Path, empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is 64 MiB; here it is lowered, or the test would write as much."""
    monkeypatch.setattr("diagevo.memory.transfer.bundle_files.LONGEST", 5000)
    (bundle / "texts.jsonl").write_bytes(b"[" * 6000)
    sign(bundle, "texts.jsonl", 101)
    assert refused(bundle, empty).endswith("after row 0, cannot be read: a line has more than 5,000 bytes")


@pytest.mark.parametrize(
    ("values", "places", "how"),
    [
        (1, [0] * 10_000, {}),
        (450, [0], {"use_dictionary": False}),
        (1, [0] * 450, {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}),
    ],
    ids=["one value often", "one large value", "each begins with the one before"],
)
def test_a_small_file_that_unpacks_to_gigabytes_is_refused_by_a_bound_that_it_cannot_change(
    tmp_path: Path, values: int, places: list[int], how: dict[str, Any]
) -> None:
    """`values`: MiB of the only content, which stands in all `places`."""
    contents = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array(places, "int32"), pyarrow.array([b"x" * values * 2**20], "binary")
    )
    if how:
        contents = contents.cast("binary")
    table = pyarrow.table({"digest": ["0" * 64] * len(places), "content": contents})
    file = tmp_path / "texts.parquet"
    pyarrow.parquet.write_table(
        table, file, compression="zstd", store_schema=False, write_statistics=False, **how
    )
    del contents, table
    assert file.stat().st_size < 100_000
    with closing(ParquetReader(tmp_path)) as reader:
        with pytest.raises(ValueError, match=r"it takes more than 1,073,741,824 bytes of memory"):
            list(reader.rows("texts", len(places)))
        assert most_held(reader) < MEMORY


def test_a_process_that_unpacks_and_dies_is_a_bundle_that_cannot_be_read(tmp_path: Path) -> None:
    write_parquet(tmp_path, "texts", [{"digest": "0" * 64, "content": b""}] * 2)
    with closing(ParquetReader(tmp_path)) as reader:
        reader._process.kill()
        with pytest.raises(ValueError, match="the process that unpacks it ended with status -9"):
            next(reader.rows("texts", 2))


def test_nothing_of_the_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python looks for modules in the current folder first, which may be the bundle's."""
    write_parquet(tmp_path, "texts", [{"digest": "0" * 64, "content": b""}])
    (tmp_path / "msgspec.py").write_text("open('run', 'w').close()")
    monkeypatch.chdir(tmp_path)
    assert len(list(rows_read(Path(), "texts", 1))) == 1
    assert not (tmp_path / "run").exists()


def test_a_parquet_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    for row in ({"digest": "0" * 64}, {"digest": "0" * 64, "content": "text"}, {"digest": 3, "content": b""}):
        write_parquet(tmp_path, "texts", [row])
        with pytest.raises(StoreError, match="its columns are not those of texts: digest, content"):
            rows_read(tmp_path, "texts", 1)


def test_replies_and_vectors_of_an_imported_run_serve_that_run_and_its_forks_alone(
    bundle: Path, empty: Database, tmp_path: Path
) -> None:
    """Events and files of a bundle may agree and be forged as a whole."""
    reply, vector = rows_of(bundle, "replies")[0], rows_of(bundle, "vectors")[0]
    name, _, about = vector["model"].rpartition("@")
    revision, _, dimension = about.rpartition("/")
    payloads = [json.loads(row["payload"]) for row in rows_of(bundle, "events")]
    said = [text for p in payloads for text in (p.get("description"), p.get("label")) if text]
    text = next(text for text in said if text_hash(text) == vector["text_hash"])
    import_bundle(bundle, empty, "theirs", root=tmp_path)
    history = History(empty, "theirs")
    fork(history, 1, "on", history.configuration().config, root=tmp_path)
    for run, served in (("theirs", True), ("on", True), ("mine", False), (None, False)):
        recalled = Artifacts(empty, run).recall_reply(reply["model"], reply["request"])
        assert (recalled is not None) == served, run
        stored = Vectors(empty, run or "other", name, int(dimension), revision).stored([text])
        assert (text in stored) == served, run
    Artifacts(empty, "mine").remember_reply(reply["model"], reply["request"], Reply("my own", 1, 1))
    mine = Artifacts(empty, "mine").recall_reply(reply["model"], reply["request"])
    assert mine == Reply("my own", 1, 1)
    export_bundle(history, history.end, tmp_path / "again")
    for kind in ("replies", "vectors"):
        assert sorted(map(str, rows_of(tmp_path / "again", kind))) == sorted(map(str, rows_of(bundle, kind)))


def test_a_text_that_is_wrong_in_the_database_is_repaired_by_an_import(bundle: Path, empty: Database) -> None:
    right = rows_of(bundle, "texts")[0]["digest"]
    with empty.write() as connection:
        connection.exec_driver_sql("INSERT INTO artifact VALUES (?, ?)", (right, b"damaged"))
    with pytest.raises(StoreError, match="was changed"):
        Artifacts(empty).get(right)
    import_bundle(bundle, empty)
    assert digest_of(Artifacts(empty).get(right)) == right


def test_a_text_that_is_wrong_in_the_database_is_repaired_where_it_is_put_again(store: Store) -> None:
    database = Database(store.url)
    artifacts = Artifacts(database)
    digest = artifacts.put("a right text")
    with database.write() as connection:
        connection.execute(update(ARTIFACT).values(content=b"wrong"))
    with pytest.raises(StoreError, match="was changed"):
        artifacts.get(digest)
    artifacts.put("a right text")
    assert artifacts.get(digest) == "a right text"
    database.close()


def test_a_text_that_was_changed_is_not_exported(my_history: History, tmp_path: Path) -> None:
    with my_history.database.write() as connection:
        connection.execute(update(ARTIFACT).values(content=b"wrong"))
    with pytest.raises(StoreError, match="was changed"):
        export_bundle(my_history, my_history.end, tmp_path / "out")


def test_every_refusal_leaves_the_log_as_it_was(bundle: Path, my_history: History) -> None:
    """Into a database that has runs: the texts that came before the fault are gone too."""
    texts = rows_of(bundle, "texts")
    new = {"digest": digest_of("new"), "content": packed(b"new")}
    write_rows(bundle, "texts", [new, *texts, new])
    with pytest.raises(StoreError, match="is there twice"):
        import_bundle(bundle, my_history.database, "copy")
    assert Log(my_history.database).runs() == ["played"]
    with pytest.raises(Exception, match="no text with digest"):
        Artifacts(my_history.database).get(new["digest"])


def test_every_kind_of_row_names_its_columns() -> None:
    """The columns are the tables': a new one there is one here."""
    from diagevo.memory.log.artifacts import REPLY
    from diagevo.memory.log.log import EVENT
    from diagevo.memory.log.vectors import VECTOR

    for kind, table in (("events", EVENT), ("texts", ARTIFACT), ("replies", REPLY), ("vectors", VECTOR)):
        assert list(ROWS[kind].__struct_fields__) == [column.name for column in table.c]
