"""What a restore leaves beside: chain heads that the backup does not have, and writers that may be alive."""

import os
import subprocess
from pathlib import Path

import pytest

from diagevo.errors import StoreError
from diagevo.memory.audit.verify import verify
from diagevo.memory.log import heads
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import RUN
from diagevo.memory.log.writer_lock import writer
from diagevo.memory.transfer.backup import Backup, backup, restore
from tests.contracts.databases import SQLiteStores, Store
from tests.memory.play import first_round


def _play(store: Store, run: str = "a") -> None:
    with store.open(run) as memory:
        first_round(memory, [("drops a carry", "add", 1)])


def _kept(stores: SQLiteStores, folder: Path) -> tuple[Store, Database, Backup]:
    """A run of one round, and a backup of it."""
    store = stores.new(folder)
    _play(store)
    database = Database(store.url)
    return store, database, backup(database, folder / "copy.db")


def _rounds(store: Store, run: str) -> list[int]:
    return [line.round for line in heads.read(store.root / run / heads.NAME).heads]


def test_heads_of_runs_with_events_that_the_backup_does_not_have_are_put_aside(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    store, database, made = _kept(sqlite_stores, tmp_path)
    _play(store)
    _play(store, "b")
    heads.append(store.root / "elsewhere", heads.ChainHead(1, 5, "a" * 64))
    restored = restore(made.file, database, replace=True, root=store.root)
    assert (_rounds(store, "a"), _rounds(store, "b")) == ([], [])
    assert _rounds(store, "elsewhere") == [1]  # another database may keep its runs beside
    assert {path.parent.name for path in restored.aside if heads.NAME in path.name} == {"a", "b"}
    _play(store, "a")
    _play(store, "b")
    assert _rounds(store, "a") == [2]  # it vouches for round 1 too
    with store.log() as log:
        assert verify(log, "b", store.root / "b").faults == []
        assert verify(log, "a", store.root / "a").faults == []
    database.close()


def test_heads_that_may_only_be_added_to_stay_and_the_restore_says_so(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    store, database, made = _kept(sqlite_stores, tmp_path)
    _play(store)
    kept = store.root / "a" / heads.NAME
    if subprocess.run(["chattr", "+a", kept], capture_output=True, check=False).returncode:
        pytest.skip("no append-only files here")
    try:
        with pytest.raises(StoreError, match=r"the database is restored, but .* cannot be moved aside"):
            restore(made.file, database, replace=True, root=store.root)
    finally:
        subprocess.run(["chattr", "-a", kept], check=True)
    assert _rounds(store, "a") == [1, 2]
    with store.log() as log:
        [fault] = verify(log, "a", store.root / "a").faults
    assert "in round 2, ended the chain, and the database does not have it" in fault.message
    database.close()


def test_nobody_takes_a_run_while_its_database_is_replaced(
    sqlite_stores: SQLiteStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, database, made = _kept(sqlite_stores, tmp_path)
    real, held = os.replace, list[str]()

    def replaced(*files: Path) -> None:
        held.append(writer(database, "a", store.root / "a") or "nobody")
        real(*files)

    monkeypatch.setattr(os, "replace", replaced)
    restore(made.file, database, replace=True)
    assert [name.rpartition(" on ")[0] for name in held] == [f"diagevo {os.getpid()}"] * 2
    monkeypatch.undo()
    assert writer(database, "a", store.root / "a") is None
    database.close()


def test_a_database_that_somebody_reads_is_not_replaced(sqlite_stores: SQLiteStores, tmp_path: Path) -> None:
    store = sqlite_stores.new(tmp_path)
    database = Database(store.url)
    made = backup(database, tmp_path / "copy.db")
    with store.log() as reader, reader.database.read() as connection:
        connection.execute(RUN.select()).all()
        with pytest.raises(StoreError, match="is in use"):
            restore(made.file, database, replace=True)
    database.close()
