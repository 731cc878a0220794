"""Bundles made to deceive: nothing of one is believed before it was checked, and nothing stays of one that
was refused. One lie a test: the list is read as one."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from sqlalchemy import update

from diagevo.config.models import Config
from diagevo.errors import ConfigError, StoreError
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import Embedder
from diagevo.memory.events.records import Recorded, event_id
from diagevo.memory.history import History, open_history
from diagevo.memory.log.artifacts import ARTIFACT, Artifacts, digest_of
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.vectors import Vectors, text_hash
from diagevo.memory.state.vote_checks import SECTIONS
from diagevo.memory.transfer import bundle_file
from diagevo.memory.transfer.bundle import check_bundle, export_bundle, import_bundle
from diagevo.memory.transfer.bundle_file import UntrustedBundle, Writer
from diagevo.memory.transfer.fork import fork
from tests.contracts.databases import SQLiteStores, Store
from tests.memory.audit.forging import Rows, alter, forge_events, rows_of, write_rows
from tests.memory.audit.played import play

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(played_sqlite: Store, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The hand-played run, as a bundle."""
    history = open_history(played_sqlite.url, "played")
    file = tmp_path_factory.mktemp("exported") / "out"
    export_bundle(history, history.end, file)
    history.close()
    return file.read_bytes()


@pytest.fixture
def bundle(exported: bytes, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    (tmp_path / "bundle").write_bytes(exported)
    return tmp_path / "bundle"


@pytest.fixture
def empty(sqlite_stores: SQLiteStores, tmp_path: Path) -> Iterator[Database]:
    (tmp_path / "store").mkdir()
    database = Database(sqlite_stores.new(tmp_path / "store").url)
    yield database
    database.close()


def refused(bundle: Path, database: Database) -> str:
    """The error of an import that left nothing behind; the check says the very same."""
    with pytest.raises((StoreError, ConfigError)) as caught:
        import_bundle(bundle, database)
    with pytest.raises((StoreError, ConfigError)) as checked:
        check_bundle(bundle)
    assert checked.value.message == caught.value.message
    assert caught.value.hint
    with database.read() as connection:
        for table in ("event", "run", "artifact", "reply", "vector", "snapshot"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() == 0
    return caught.value.message


NO_TEXT = b"\xff"
NUL = b"2 +\0 2"
MEASURED = (
    '{"benchmark":"validation","checkpoint":"m","conditions":{},"metrics":{"mean_at_k":0.5},"questions":8,'
    '"role":"solver","seconds":null}'
)


@pytest.mark.parametrize(
    ("table", "place", "change", "said"),
    [
        ("artifact", 4, {"content": b"forged"}, "is not the text of its digest"),
        ("artifact", 0, {"digest": sha256(NO_TEXT).hexdigest(), "content": NO_TEXT}, "is not UTF-8"),
        ("artifact", 0, {"digest": sha256(NUL).hexdigest(), "content": NUL}, "holds a NUL"),
        ("vector", 1, {"vector": b"\0" * 12}, "has 12 bytes, not 16"),
        ("vector", 1, {"vector": b""}, "has 0 bytes, not 16"),
        ("vector", 1, {"vector": np.array([1, 0, np.nan, 0], "<f4").tobytes()}, "is not finite"),
        ("vector", 1, {"model": "another@1/4"}, "is a vector that no event asks for"),
        ("vector", 1, {"text_hash": "0" * 64}, "is a vector that no event asks for"),
    ],
)
def test_a_text_or_a_vector_that_cannot_be_the_runs_is_refused(
    bundle: Path, empty: Database, table: str, place: int, change: dict[str, Any], said: str
) -> None:
    rows = rows_of(bundle, table)
    rows[place] |= change
    write_rows(bundle, table, rows)
    assert refused(bundle, empty) == f"row {place + 1} of {table} in the bundle {bundle} {said}"


def test_a_text_that_no_event_names_is_not_brought_in(bundle: Path, empty: Database) -> None:
    rows = rows_of(bundle, "artifact")
    write_rows(bundle, "artifact", [*rows, {"digest": digest_of("more"), "content": b"more"}])
    said = f"row {len(rows) + 1} of artifact in the bundle {bundle} is a text that no event names"
    assert refused(bundle, empty) == said


FORGED: dict[str, tuple[int | str, dict[str, str] | tuple[str, str], str]] = {
    "a path outside of the run": (
        "StageCompleted",
        ('"artifacts":[]', '"artifacts":[{"path":"writer.lock","sha256":"' + "f" * 64 + '"}]'),
        "is not what was written: the payload of an event StageCompleted cannot be read: 'writer.lock' is not"
        " a path in rounds/",
    ),
    "no digest": (
        "FailureObserved",
        ('"trajectory":"', '"trajectory":"0'),
        "is not what was written: the payload of an event FailureObserved cannot be read: Expected `str` of"
        " length <= 64 - at `$.trajectory`",
    ),
    "another run": (3, {"run_id": "other"}, "is an event of run other"),
    "another id": (
        *(3, {"event_id": "00000000-0000-5000-8000-000000000000"}),
        "is not what was written: its id is another event's",
    ),
    "no time": (
        *(3, {"recorded_at": "yesterday"}),
        "is not what was written: Invalid isoformat string: 'yesterday'",
    ),
    "another cause": (3, {"cause_id": "c9"}, "is not what was written: its cause is not its payload's"),
    "a time of another zone": (
        *(3, {"recorded_at": "2026-01-01T00:00:00.000000+02:00"}),
        "is not what was written: its time is '2026-01-01T00:00:00.000000+02:00', not one of UTC",
    ),
    "no digest of a file": (
        "StageCompleted",
        ('"artifacts":[]', '"artifacts":[{"path":"rounds/1","sha256":"zz"}]'),
        "is not what was written: the payload of an event StageCompleted cannot be read: Expected `str`"
        " matching regex '^[0-9a-f]{64}$' - at `$.artifacts[0].sha256`",
    ),
    "less than no time": (
        *("StageCompleted", ('"parts":{}', '"parts":{"cpu":-1e+300}')),
        "is not what was written: the payload of an event StageCompleted cannot be read: Expected `float`",
    ),
    "a key twice": (
        *("CandidateScored", ('"first":', '"first":7,"first":')),
        "is not what was written: the payload of an event CandidateScored cannot be read: it is not as it"
        " would be written: …",
    ),
    "an unknown type": (
        *(3, {"type": "CauseForgiven"}),
        "is not what was written: an event CauseForgiven of version ",
    ),
    "NUL": (
        *("RunConfigured", ('"version":"', '"version":"\\u0000')),
        "is not what was written: it holds a NUL, which no database keeps",
    ),
    "deep": (
        *("RunConfigured", ('"config":{', f'"config":{{"a":{"[" * 100_000 + "]" * 100_000},')),
        "is not what was written: ",
    ),
}
"""The event, by its place or as the first of a type; what is changed of it; what is said."""


@pytest.mark.parametrize(("where", "change", "said"), FORGED.values(), ids=FORGED)
def test_a_chain_that_was_hashed_again_does_not_make_an_event_believed(
    bundle: Path, empty: Database, where: int | str, change: dict[str, str] | tuple[str, str], said: str
) -> None:
    events = rows_of(bundle, "event")
    place = where if isinstance(where, int) else next(i for i, r in enumerate(events) if r["type"] == where)

    def forge(rows: Rows) -> None:
        payload = rows[place]["payload"]
        rows[place] |= change if isinstance(change, dict) else {"payload": payload.replace(*change)}

    forge_events(bundle, forge)
    subject = "row {} of event in" if said.startswith("is an event of") else "event {} of"
    assert refused(bundle, empty).startswith(f"{subject.format(place + 1)} the bundle {bundle} {said}")


def test_a_history_without_a_configuration_is_refused(bundle: Path, empty: Database) -> None:
    def measured_alone(rows: Rows) -> None:
        first = rows[0]
        first |= {"type": "CheckpointEvaluated", "schema_version": 2, "payload": MEASURED}
        first["event_id"] = event_id(0, "CheckpointEvaluated", "solver.validation")
        rows[:] = [first]

    forge_events(bundle, measured_alone)
    assert "a run begins with its configuration" in refused(bundle, empty)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"mean_at_k":0.5', '"mean_at_k":7.5', "Expected `float` <= 1"),
        ("0", "999", "round 999 was never opened"),
    ],
)
def test_a_measurement_is_a_share_after_a_round_that_was_opened(
    bundle: Path, empty: Database, old: str, new: str, said: str
) -> None:
    def measured(rows: Rows) -> None:
        number = int(new) if new.isdecimal() else 0
        row = rows[-1] | {"type": "CheckpointEvaluated", "schema_version": 2, "round": number}
        row |= {"sequence": len(rows) + 1, "position": rows[-1]["position"] + 1, "causation_id": None}
        row |= {"cause_id": None, "payload": MEASURED.replace(old, new) if number == 0 else MEASURED}
        rows.append(row | {"event_id": event_id(number, "CheckpointEvaluated", "solver.validation")})

    forge_events(bundle, measured)
    assert said in refused(bundle, empty)


def test_a_history_that_does_not_follow_is_refused_though_its_chain_holds(
    bundle: Path, empty: Database
) -> None:
    def promote(rows: Rows) -> None:
        row = next(r for r in rows if r["type"] == "CausePromoted")
        row["payload"] = row["payload"].replace('"consistency":"3/4"', '"consistency":"1"')

    forge_events(bundle, promote)
    assert "CausePromoted" in refused(bundle, empty)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"theta_dup":0.5', '"theta_dup":0.99', "memory.theta_dup is 0.99, and a cause at 0.8 was shown"),
        ('"theta_dup":0.5', '"theta_dup":0.05', "memory.theta_dup is 0.05, and the nearest, at 0.1, was not"),
        ('"theta_dup":0.5', '"theta_dup":"0.5"', "cannot be: '<=' not supported"),
        ('"theta_merge":0.5', '"theta_merge":0.99', "memory.theta_merge is 0.99, and the nodes are at 0.51"),
        ('"config":{', '"config":{"roles":"text",', "roles of its configuration is no section"),
        ('"memory":{', '"memory":[],"was":{', "memory of its configuration is no section"),
        (
            '"models":{',
            '"models":{"challenger":{"name":"m","revision":"1"},',
            "it names a challenger, and has no settings that one is trained with",
        ),
    ],
)
def test_a_configuration_that_the_judgements_below_it_contradict_is_refused_and_named(
    bundle: Path, empty: Database, tmp_path: Path, old: str, new: str, said: str
) -> None:
    def forge(rows: Rows) -> None:
        told = json.loads(rows[0]["payload"].replace(old, new))
        if "challenger" in told["models"]:  # and nothing that one is trained with
            told["config"] = {}
        payload = json.dumps(told, separators=(",", ":"), sort_keys=True)
        assert payload != rows[0]["payload"]
        rows[0]["payload"] = payload

    forge_events(bundle, forge)
    assert said in refused(bundle, empty)
    (tmp_path / "own").mkdir()
    store = Store(empty.url.render_as_string(hide_password=False), tmp_path / "own")
    play(store.url, "played", root=store.root)
    records = [Recorded(**row) for row in rows_of(bundle, "event")]
    store.rewrite(lambda row: records[row.sequence - 1].payload, run="played")
    with store.log() as log:
        faults = verify(log, "played", tmp_path / "nowhere").faults
    assert [said in fault.message for fault in faults if fault.check == "replay"] == [True]


def test_the_sections_of_a_configuration_are_those_that_there_are() -> None:
    sections = {
        name
        for name, field in Config.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    assert sections == SECTIONS


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("sequence", 7, "ends at event 139 in "),
        ("hash", "0" * 64, "; its run says 139 in 000000000000…"),
        ("run_id", "b", "row 1 of event in the bundle {} is an event of run played"),
        ("run_id", "../b", "'../b' cannot name a run"),
        ("hash", "head", "; its run says 139 in head…"),
    ],
)
def test_a_run_that_says_otherwise_than_its_events_is_refused(
    bundle: Path, empty: Database, key: str, value: Any, said: str
) -> None:
    [run] = rows_of(bundle, "run")
    write_rows(bundle, "run", [run | {key: value}])
    assert said.format(bundle) in refused(bundle, empty)


def test_a_bundle_of_no_run_or_of_two_is_refused(bundle: Path, empty: Database) -> None:
    [run] = rows_of(bundle, "run")
    write_rows(bundle, "run", [run, run | {"run_id": "b"}])
    assert refused(bundle, empty) == f"the bundle {bundle} holds 2 runs, not one"
    write_rows(bundle, "run", [])
    assert refused(bundle, empty) == f"the bundle {bundle} holds 0 runs, not one"


RUN_AS_VIEW = (
    "CREATE VIEW run AS SELECT 'a' AS run_id, 1 AS sequence, '' AS hash, '' AS created_at, NULL AS imported"
)
OTHERS = {
    "view": (["CREATE VIEW v AS SELECT 1"], "the view 'v'"),
    "trigger": (
        ["CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM artifact; END"],
        "the trigger 't'",
    ),
    "table": (["CREATE TABLE more (a TEXT) STRICT"], "the table 'more'"),
    "virtual table": (["CREATE VIRTUAL TABLE found USING fts5(a)"], "the table 'found'"),
    "index": (["CREATE INDEX i ON event (payload)"], "the index 'i'"),
    "a run that is a view": (["DROP TABLE run", RUN_AS_VIEW], "the view 'run'"),
    "a table that takes any type": (
        ["DROP TABLE artifact", "CREATE TABLE artifact (digest TEXT, content BLOB)"],
        "the table 'artifact'",
    ),
    "a generated column": (
        ["ALTER TABLE vector ADD COLUMN more TEXT AS (model) VIRTUAL"],
        "the table 'vector'",
    ),
    "a default that is run": (
        ["ALTER TABLE vector ADD COLUMN more TEXT DEFAULT (random())"],
        "the table 'vector'",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_anything_but_the_plain_tables_is_refused_and_never_run(
    bundle: Path, empty: Database, other: str
) -> None:
    statements, named = OTHERS[other]
    if "random" in statements[0]:  # SQLite adds no such column to rows that are there
        statements = ["DELETE FROM vector", *statements]
    alter(bundle, *statements)
    assert refused(bundle, empty) == f"the bundle {bundle} holds {named}, which no bundle has"


def test_a_missing_table_is_named(bundle: Path, empty: Database) -> None:
    alter(bundle, "DROP TABLE vector", "DROP TABLE artifact")
    assert refused(bundle, empty) == f"the bundle {bundle} lacks artifact, vector"


def test_a_value_of_another_type_behind_its_column_is_refused(bundle: Path, empty: Database) -> None:
    [run] = rows_of(bundle, "run")
    write_rows(bundle, "run", [run | {"sequence": "many"}])
    assert refused(bundle, empty) == f"the bundle {bundle} is damaged: non-INTEGER value in run.sequence"


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.with_name("kept").write_bytes(b"")
    path.symlink_to(path.with_name("kept"))


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [_pipe, _link, _device, Path.mkdir])
def test_only_a_regular_file_is_opened(bundle: Path, empty: Database, make: Callable[[Path], None]) -> None:
    bundle.unlink()
    make(bundle)
    assert refused(bundle, empty).startswith(f"{bundle} cannot be read as a bundle: ")


def test_what_is_no_bundle_is_said_to_be_none(bundle: Path, empty: Database, tmp_path: Path) -> None:
    assert "cannot be read as a bundle: No such file" in refused(tmp_path / "none", empty)
    (tmp_path / "text").write_text("a text")
    assert "cannot be read as a bundle: it is not a bundle" in refused(tmp_path / "text", empty)
    assert empty.file is not None
    assert refused(empty.file, empty) == f"{empty.file} is not a bundle"
    alter(bundle, "PRAGMA user_version = 9")
    assert refused(bundle, empty) == f"{bundle} is a bundle of format 9, this version reads 1"


def test_a_file_that_was_cut_or_has_a_journal_beside_it_is_read_as_it_lies(
    bundle: Path, empty: Database
) -> None:
    """A journal would be rolled back into the file, and may name another one."""
    content = bundle.read_bytes()
    for end in ("-journal", "-wal", "-shm"):
        bundle.with_name(bundle.name + end).write_bytes(content)
    check_bundle(bundle)
    assert bundle.read_bytes() == content
    bundle.write_bytes(content[: len(content) // 2])
    assert "the bundle" in refused(bundle, empty)


def test_a_row_that_weighs_too_much_is_neither_read_nor_written(
    bundle: Path, empty: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is 64 MiB; here it is lowered."""
    rows = rows_of(bundle, "artifact")
    write_rows(bundle, "artifact", [*rows[:-1], rows[-1] | {"content": b"x" * 200_000}])
    monkeypatch.setattr("diagevo.memory.transfer.bundle_file.LONGEST", 100_000)
    assert "cannot be read: string or blob too big" in refused(bundle, empty)
    with closing(Writer(tmp_path / "out")) as out:
        out.add("artifact", {"digest": "0" * 64, "content": b"x" * 90_000})
        with pytest.raises(StoreError, match="row 2 of artifact has more than 100,000 bytes"):
            out.add("artifact", {"digest": "1" * 64, "content": b"x" * 100_000})


def test_a_row_of_64_mib_is_written_and_read_and_no_larger_one(tmp_path: Path) -> None:
    """What the writer takes, the reader takes too: the length counts all columns of the row."""
    most = 64 * 2**20 - 1000
    with closing(Writer(tmp_path / "out")) as out:
        out.add("artifact", {"digest": "0" * 64, "content": b"x" * most})
        with pytest.raises(StoreError, match="row 2 of artifact has more than 67,108,864 bytes"):
            out.add("artifact", {"digest": "1" * 64, "content": b"x" * (64 * 2**20 + 1)})
        out.add("run", {"run_id": "a", "sequence": 0, "hash": "", "created_at": "", "imported": None})
    with closing(UntrustedBundle(tmp_path / "out")) as bundle:
        [row] = bundle.rows("artifact")
        assert len(row["content"]) == most


def test_the_look_at_a_whole_file_may_take_longer_for_a_larger_one(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second more for each 4 MiB: here no time passes, and that is all there is."""
    monkeypatch.setattr(bundle_file, "SECONDS", 0)
    monkeypatch.setattr(bundle_file.time, "monotonic", lambda: 1000.0)
    check_bundle(bundle)
    monkeypatch.setattr(bundle_file.time, "monotonic", iter([1000.0, 1000.0, *[1001.0] * 10**6]).__next__)
    with pytest.raises(StoreError, match="a step takes more than 0 s"):
        check_bundle(bundle)


def test_reading_that_does_not_end_is_ended(
    bundle: Path, empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagevo.memory.transfer.bundle_file.SECONDS", -3600)
    assert "cannot be read: a step takes more than" in refused(bundle, empty)


def test_vectors_of_an_imported_run_serve_that_run_and_its_forks_alone(
    bundle: Path, empty: Database, tmp_path: Path
) -> None:
    """Events and vectors of a bundle may agree and be forged as a whole."""
    vector = rows_of(bundle, "vector")[0]
    name, _, about = vector["model"].rpartition("@")
    revision, _, dimension = about.rpartition("/")
    payloads = [json.loads(row["payload"]) for row in rows_of(bundle, "event")]
    said = [text for p in payloads for text in (p.get("description"), p.get("label")) if text]
    text = next(text for text in said if text_hash(text) == vector["text_hash"])
    import_bundle(bundle, empty, "theirs", root=tmp_path)
    history = History(empty, "theirs")
    fork(history, 1, "on", history.configuration().config, root=tmp_path)
    for run, served in (("theirs", True), ("on", True), ("mine", False)):
        stored = Vectors(empty, run, Embedder(name, int(dimension), revision)).stored([text])
        assert (text in stored) == served, run
    export_bundle(history, history.end, tmp_path / "again")
    assert sorted(map(str, rows_of(tmp_path / "again", "vector"))) == sorted(
        map(str, rows_of(bundle, "vector"))
    )


def test_a_text_that_is_wrong_in_the_database_is_repaired_by_an_import(bundle: Path, empty: Database) -> None:
    right = rows_of(bundle, "artifact")[0]["digest"]
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
    texts = rows_of(bundle, "artifact")
    new = {"digest": digest_of("new"), "content": b"new"}
    write_rows(bundle, "artifact", [*texts, new])
    with pytest.raises(StoreError, match="is a text that no event"):
        import_bundle(bundle, my_history.database, "copy")
    assert Log(my_history.database).runs() == ["played"]
    with pytest.raises(Exception, match="no text with digest"):
        Artifacts(my_history.database).get(new["digest"])
