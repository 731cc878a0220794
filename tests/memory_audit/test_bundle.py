"""Bundles: out, checked, and in again."""

import json
import os
from contextlib import closing
from pathlib import Path

import pytest

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.audit.history import History, open_history
from diagevo.memory.audit.verify import verify
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.transfer.bundle import check_bundle, export_bundle, import_bundle
from diagevo.memory.transfer.bundle_files import Form, writer
from diagevo.memory.transfer.bundle_parquet import GROUP, ParquetReader
from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.memory_audit.forging import most_held
from tests.memory_audit.random_play import play_randomly

FORMS: tuple[Form, ...] = ("jsonl", "parquet")


@pytest.mark.parametrize("form", FORMS)
def test_a_run_comes_back_with_the_very_same_head(
    history: History, store: Store, tmp_path: Path, form: Form
) -> None:
    manifest = export_bundle(history, history.end, tmp_path / "out", form)
    target = Database(store.url)
    written = import_bundle(tmp_path / "out", target, root=store.root)
    assert written.hash == manifest.head == history.log.head("played").hash
    report = verify(Log(target), "played", store.root / "played", deep=True)
    assert (report.faults, report.heads, report.texts) == ([], 4, 91)
    target.close()


@pytest.mark.parametrize("form", FORMS)
def test_exporting_what_was_imported_gives_the_same_rows(
    my_history: History, store: Store, tmp_path: Path, form: Form
) -> None:
    first = export_bundle(my_history, my_history.end, tmp_path / "first", form)
    target = Database(store.url)
    import_bundle(tmp_path / "first", target, root=store.root)
    again = History(target, "played")
    second = export_bundle(again, again.end, tmp_path / "second", form)
    assert {n: f["rows"] for n, f in first.files.items()} == {n: f["rows"] for n, f in second.files.items()}
    if form == "jsonl":
        assert (tmp_path / "first/events.jsonl").read_text() == (tmp_path / "second/events.jsonl").read_text()
    target.close()


def test_a_run_beside_others_and_under_another_name_verifies(
    sqlite_stores: SQLiteStores, postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    source, target = sqlite_stores.new(tmp_path), postgres_stores.new(tmp_path / "pg")
    for seed in (1, 2):
        play_randomly(source.url, f"run{seed}", seed, root=source.root, rounds=2, pool=6)
    history = open_history(source.url, "run2")
    export_bundle(history, history.end, tmp_path / "out")
    database = Database(target.url)
    for name in (None, "copy"):
        written = import_bundle(tmp_path / "out", database, name, root=target.root)
        assert verify(Log(database), written.run_id, target.root / written.run_id, deep=True).ok
    copy = History(database, "copy")
    assert [r.payload for r in copy.events() if r.type != "CauseReactivated"] == [
        r.payload for r in history.events() if r.type != "CauseReactivated"
    ]
    assert copy.state(copy.end).causes.keys() == history.state(history.end).causes.keys()
    history.close()
    database.close()


def test_a_bundle_as_of_a_round_ends_with_its_commit(history: History, tmp_path: Path) -> None:
    manifest = export_bundle(history, history.as_of(2), tmp_path / "out")
    assert (manifest.round, manifest.head) == (2, history.commit(2).recorded.hash)
    assert check_bundle(tmp_path / "out").events == history.as_of(2).sequence


def damage(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def rehash(folder: Path, name: str) -> None:
    """Make the manifest agree with a changed file, as a careful forger would."""
    from diagevo.memory.transfer.bundle_rows import digest_of_file

    manifest = json.loads((folder / "manifest.json").read_text())
    described = manifest["files"][name]
    described["sha256"] = digest_of_file(folder / name)
    if name.endswith(".jsonl"):
        described["rows"] = len((folder / name).read_bytes().splitlines())
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("forged", [False, True])
def test_a_changed_event_is_refused_whole(
    my_history: History, store: Store, tmp_path: Path, forged: bool
) -> None:
    folder = tmp_path / "out"
    export_bundle(my_history, my_history.end, folder)
    damage(folder, "events.jsonl", "17/24", "18/24")
    if forged:
        rehash(folder, "events.jsonl")
    target = Database(store.url)
    with pytest.raises(StoreError, match="is not what was"):
        import_bundle(folder, target, root=store.root)
    with pytest.raises(StoreError, match="is not what was"):
        check_bundle(folder)
    assert Log(target).runs() == []
    assert Log(target).last_position() == 0
    target.close()


def test_a_bundle_without_its_end_is_refused(my_history: History, store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export_bundle(my_history, my_history.end, folder)
    lines = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    (folder / "events.jsonl").write_text("".join(lines[:-1]))
    rehash(folder, "events.jsonl")
    with pytest.raises(StoreError, match="ends at event 138"):
        check_bundle(folder)


def test_an_existing_run_is_never_imported_over(my_history: History, tmp_path: Path) -> None:
    export_bundle(my_history, my_history.end, tmp_path / "out")
    with pytest.raises(ConfigError, match="exists already"):
        import_bundle(tmp_path / "out", my_history.database)
    assert my_history.log.last_position() == my_history.end.position


def test_a_folder_with_something_in_it_is_not_written_to(history: History, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        export_bundle(history, history.end, tmp_path)


def test_what_is_no_bundle_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a bundle"):
        check_bundle(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(StoreError, match="cannot be read"):
        check_bundle(tmp_path)


def test_replies_and_vectors_travel(sqlite_stores: SQLiteStores, tmp_path: Path) -> None:
    from diagevo.memory.events import NodeAssigned
    from diagevo.memory.log.artifacts import Artifacts, Reply
    from tests.memory_audit.played import C1, embed, play

    source, target = sqlite_stores.new(tmp_path), tmp_path / "target"
    target.mkdir()
    there = sqlite_stores.new(target)
    play(source.url, "a", root=source.root, rounds=1)
    history = open_history(source.url, "a")
    artifacts = Artifacts(history.database)
    call = next(history.events(NodeAssigned)).event.call  # pyright: ignore[reportAttributeAccessIssue]
    reply = Reply(artifacts.get(call.reply), 3, 1)
    artifacts.remember_reply("hand-diagnostician", call.request, reply)
    export_bundle(history, history.end, tmp_path / "out")
    database = Database(there.url)
    import_bundle(tmp_path / "out", database, root=there.root)
    assert Artifacts(database, "a").recall_reply("hand-diagnostician", call.request) == reply
    with there.open("a") as memory:

        def refuse(texts):
            raise AssertionError("embedded again")

        assert memory.vectors([C1], refuse).tolist() == embed([C1]).tolist()
    history.close()
    database.close()


@pytest.mark.slow
def test_a_parquet_file_is_read_a_group_at_a_time(tmp_path: Path) -> None:
    """40 MB that cannot be packed, in eight groups of 5 MB."""
    rows, size = 8 * GROUP, 1000
    with writer(tmp_path, "texts", "parquet") as out:
        for number in range(rows):
            out.add({"digest": f"{number:064x}", "content": os.urandom(size)})
    with closing(ParquetReader(tmp_path)) as reader:
        read = reader.rows("texts", rows)
        next(read)
        before = most_held(reader)
        assert sum(1 for _ in read) == rows - 1
        assert most_held(reader) - before < 4 * GROUP * (size + 64)
