"""Backups and restores that cannot be: each says what, where and the next step, and leaves nothing behind."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from diagevo.errors import ConfigError, DiagEvoError, StoreError
from diagevo.memory.log.database import Database
from diagevo.memory.transfer.backup import backup, contents, restore
from tests.contracts.databases import Store


def refusal(kind: type[DiagEvoError], work: Callable[..., Any], *given: Any, **more: Any) -> str:
    """The message of the error; every one has a hint."""
    with pytest.raises(kind) as caught:
        work(*given, **more)
    assert caught.value.hint
    return caught.value.message


@pytest.fixture
def whole(mine: Store) -> Path:
    """The run's file, with nothing beside it."""
    file = mine.root / "log.db"
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert not list(mine.root.glob("log.db-*"))
    return file


def scribble(file: Path, page: int) -> None:
    """Overwrite a page of the file."""
    with closing(sqlite3.connect(file)) as opened:
        size = opened.execute("PRAGMA page_size").fetchone()[0]
    with file.open("r+b") as opened:
        opened.seek((page - 1) * size)
        opened.write(b"\x55" * size)


def root_page(file: Path, name: str) -> int:
    with closing(sqlite3.connect(file)) as opened:
        return opened.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]


@pytest.mark.parametrize("name", ["event", "ix_event_run_cause", "run", "sqlite_master"])
def test_a_damaged_database_gets_no_backup(whole: Path, tmp_path: Path, name: str) -> None:
    scribble(whole, 1 if name == "sqlite_master" else root_page(whole, name))
    assert str(whole) in refusal(StoreError, backup, Database(str(whole)), tmp_path / "new" / "copy.db")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_copy_that_came_out_wrong_never_gets_the_backups_name(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diagevo.memory.transfer import backup as module

    copied = module._copy_sqlite

    def badly(database: Database, target: Path) -> None:
        copied(database, target)
        scribble(target, root_page(target, "event"))

    monkeypatch.setattr(module, "_copy_sqlite", badly)
    refusal(StoreError, backup, Database(str(whole)), tmp_path / "new" / "copy.db")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_log_that_cannot_be_read_gets_no_backup(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "half.db")) as opened:
        opened.execute("CREATE TABLE event (x)")
    assert "half.db is not a DiagEvo database: no such table: run" in refusal(
        StoreError, backup, Database(str(tmp_path / "half.db")), tmp_path / "copy.db"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["half.db"]


def test_what_holds_no_log_is_named_not_the_unfinished_copy(tmp_path: Path) -> None:
    (tmp_path / "zero.db").touch()
    said = refusal(StoreError, backup, Database(str(tmp_path / "zero.db")), tmp_path / "copy.db")
    assert said == f"{tmp_path / 'zero.db'} holds no DiagEvo log"
    assert [(file.name, file.stat().st_size) for file in tmp_path.iterdir()] == [("zero.db", 0)]


def test_a_folder_that_cannot_be_written_gets_no_backup(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: Any) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(Path, "touch", refuse)
    database = Database(str(whole))
    said = refusal(StoreError, backup, database, tmp_path / "copy.db")
    assert said == f"the backup {tmp_path / 'copy.db'} cannot be written: Read-only file system"
    said = refusal(StoreError, restore, whole, Database(str(tmp_path / "new.db")))
    assert said == f"{tmp_path / 'new.db'} cannot be written: Read-only file system"


def test_a_restore_says_what_is_wrong_with_the_backup(mine: Store, tmp_path: Path) -> None:
    target = Database(mine.url)
    assert "there is no backup" in refusal(ConfigError, restore, tmp_path / "none.db", target, replace=True)
    (tmp_path / "zero.db").touch()
    said = refusal(StoreError, restore, tmp_path / "zero.db", target, replace=True)
    assert said == f"{tmp_path / 'zero.db'} holds no DiagEvo log"
    (tmp_path / "text.db").write_text("no database, but a text of some length\n" * 40)
    assert "text.db is not a DiagEvo database" in refusal(
        StoreError, restore, tmp_path / "text.db", target, replace=True
    )
    assert contents(mine.root / "log.db")[1] == 139


def test_a_folder_is_never_moved_aside_for_a_restore(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "weights").touch()
    database = Database(str(tmp_path / "runs"))
    said = refusal(StoreError, restore, whole, database, replace=True)
    assert said == f"{tmp_path / 'runs'} is a folder, not a database"
    assert [file.name for file in (tmp_path / "runs").iterdir()] == ["weights"]
    assert "is a folder" in refusal(StoreError, backup, database, tmp_path / "copy.db")
