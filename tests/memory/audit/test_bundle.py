"""Bundles: out, checked, and in again."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from diagevo.errors import ConfigError, DiagEvoError, StoreError
from diagevo.memory.audit.verify import verify
from diagevo.memory.history import History, open_history
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.transfer.bundle import check_bundle, export_bundle, import_bundle
from diagevo.memory.transfer.bundle_file import TABLES
from diagevo.memory.transfer.copying import CopiedRun, Copy
from diagevo.memory.transfer.fork import fork
from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.memory.audit.forging import alter, rows_of
from tests.memory.audit.random_play import play_randomly


def test_a_run_comes_back_with_the_very_same_head(history: History, store: Store, tmp_path: Path) -> None:
    made = export_bundle(history, history.end, tmp_path / "out")
    assert (made.events, made.texts, made.vectors) == (139, 91, 7)
    assert list(tmp_path.glob("out*")) == [tmp_path / "out"], "one file"
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0, "for its owner alone"
    target = Database(store.url)
    written = import_bundle(tmp_path / "out", target, root=store.root)
    assert written.hash == made.head == history.log.head("played").hash
    report = verify(Log(target), "played", store.root / "played", deep=True)
    assert (report.faults, report.heads, report.texts) == ([], 4, 91)
    target.close()


@pytest.mark.parametrize(("open_elsewhere", "mode"), [(False, "delete"), (True, "wal")])
def test_a_new_database_is_written_straight_where_nobody_has_it_open(
    history: History,
    sqlite_stores: SQLiteStores,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    open_elsewhere: bool,
    mode: str,
) -> None:
    made, modes = export_bundle(history, history.end, tmp_path / "out"), list[str]()
    finish = Copy.finish

    def seen(copy: Copy, imported: str | None = None) -> CopiedRun:
        modes.append(copy.connection.exec_driver_sql("PRAGMA journal_mode").scalar_one())
        return finish(copy, imported)

    monkeypatch.setattr(Copy, "finish", seen)
    (tmp_path / "new").mkdir()
    target = Database(sqlite_stores.new(tmp_path / "new").url)
    with closing(sqlite3.connect(str(target.file))) as other, closing(target):
        if open_elsewhere:
            other.execute("SELECT * FROM run").fetchall()
        for name in ("first", "second"):  # the database of the second is not new
            written = import_bundle(tmp_path / "out", target, name, root=tmp_path / "new")
            assert written.hash == made.head
            with target.read() as connection:
                assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
            assert other.execute("SELECT count(*) FROM event WHERE run_id = ?", (name,)).fetchone() == (139,)
    assert modes == [mode, "wal"]


def test_exporting_what_was_imported_gives_the_same_rows(
    my_history: History, store: Store, tmp_path: Path
) -> None:
    export_bundle(my_history, my_history.end, tmp_path / "first")
    target = Database(store.url)
    import_bundle(tmp_path / "first", target, root=store.root)
    again = History(target, "played")
    export_bundle(again, again.end, tmp_path / "second")
    for table in TABLES.keys() - {"run"}:  # which says when it was written
        assert rows_of(tmp_path / "first", table) == rows_of(tmp_path / "second", table)
    target.close()


def test_a_run_beside_others_and_under_another_name_has_the_same_history(
    sqlite_stores: SQLiteStores, postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    source, target = sqlite_stores.new(tmp_path), postgres_stores.new(tmp_path / "pg")
    for seed in (1, 2):
        play_randomly(source.url, f"run{seed}", seed, root=source.root, rounds=2, pool=6)
    history = open_history(source.url, "run2")
    made = export_bundle(history, history.end, tmp_path / "out")
    database = Database(target.url)
    for name in (None, "copy"):
        written = import_bundle(tmp_path / "out", database, name, root=target.root)
        assert written.hash == made.head
        assert verify(Log(database), written.run_id, target.root / written.run_id, deep=True).ok
    copy = History(database, "copy")
    assert [r.payload for r in copy.log.read("copy")] == [r.payload for r in history.log.read("run2")]
    assert copy.state(copy.end).causes == history.state(history.end).causes
    history.close()
    database.close()


def test_a_bundle_as_of_a_round_ends_with_its_commit(history: History, tmp_path: Path) -> None:
    made = export_bundle(history, history.as_of(2), tmp_path / "out")
    assert (made.round, made.head) == (2, history.log.by_id("played", history.commit(2).event_id).hash)
    assert check_bundle(tmp_path / "out").events == history.as_of(2).sequence


def test_a_changed_event_is_refused_whole(my_history: History, store: Store, tmp_path: Path) -> None:
    export_bundle(my_history, my_history.end, tmp_path / "out")
    alter(tmp_path / "out", "UPDATE event SET payload = replace(payload, '17/24', '18/24')")
    target = Database(store.url)
    said = "is not what was written: the bytes of #"
    with pytest.raises(StoreError, match=said):
        import_bundle(tmp_path / "out", target, root=store.root)
    with pytest.raises(StoreError, match=said):
        check_bundle(tmp_path / "out")
    assert Log(target).runs() == []
    assert Log(target).last_position() == 0
    target.close()


def test_a_bundle_without_its_end_is_refused(my_history: History, tmp_path: Path) -> None:
    export_bundle(my_history, my_history.end, tmp_path / "out")
    alter(tmp_path / "out", "DELETE FROM event WHERE sequence = 139")
    with pytest.raises(StoreError, match=r"ends at event 138 in .*; its run says 139"):
        check_bundle(tmp_path / "out")


def test_an_existing_run_is_never_imported_over(my_history: History, tmp_path: Path) -> None:
    export_bundle(my_history, my_history.end, tmp_path / "out")
    with pytest.raises(ConfigError, match="exists already"):
        import_bundle(tmp_path / "out", my_history.database)
    assert my_history.log.last_position() == my_history.end.position


def test_what_is_there_is_never_replaced_by_a_bundle(history: History, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("mine.txt", "link", "."):
        with pytest.raises(ConfigError, match="exists"):
            export_bundle(history, history.end, tmp_path / name)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_place_that_takes_no_bundle_is_named(my_history: History, tmp_path: Path) -> None:
    """A file stands where a folder is needed: that stops root too, as a read-only folder would not."""
    (tmp_path / "file").write_text("keep me")
    with pytest.raises(StoreError) as caught:
        export_bundle(my_history, my_history.end, tmp_path / "file" / "deep")
    assert caught.value.message.startswith(f"the bundle {tmp_path / 'file' / 'deep'} cannot be written: ")
    assert caught.value.hint


def test_a_run_that_does_not_hold_is_not_exported(mine: Store, tmp_path: Path) -> None:
    mine.tamper("UPDATE event SET payload = replace(payload, '17/24', '18/24') WHERE type = 'CausePromoted'")
    history = open_history(mine.url, "played")
    with pytest.raises(DiagEvoError, match="the bytes of #"):
        export_bundle(history, history.end, tmp_path / "out")
    assert list(tmp_path.glob("out*")) == []
    history.close()


def test_a_copy_holds_a_batch_of_events_at_a_time_and_leaves_none_behind(
    my_history: History, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last is the fork's own configuration, which comes after all that is copied."""
    monkeypatch.setattr("diagevo.memory.transfer.copying.BATCH", 20)
    sizes: list[int] = []
    flush = Copy._flush

    def seen(copy: Copy) -> None:
        sizes.append(len(copy._rows))
        flush(copy)

    monkeypatch.setattr(Copy, "_flush", seen)
    export_bundle(my_history, my_history.end, tmp_path / "out")
    with closing(Database(store.url)) as target:
        import_bundle(tmp_path / "out", target, root=store.root)
        assert sizes == [20] * 6 + [19, 0]
        sizes.clear()
        fork(History(target, "played", store.root), 1, "forked", root=store.root)
        assert (max(sizes), sizes[-1]) == (20, 1)
        for run in ("played", "forked"):
            assert Log(target).count(run) == Log(target).head(run).sequence
