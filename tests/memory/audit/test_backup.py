"""Backups, restores and the checks of a database."""

import sqlite3
import threading
from pathlib import Path

import pytest

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.audit.verify import verify
from diagevo.memory.log.check import check
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.transfer.backup import backup, contents, restore
from diagevo.memory.transfer.rebuilding import rebuild_projections
from tests.contracts.databases import Store
from tests.memory.audit.conftest import RUN
from tests.memory.audit.played import Player


def findings(url: str) -> dict[str, bool]:
    database = Database(url)
    found = {finding.check: finding.ok for finding in check(database)}
    database.close()
    return found


def test_a_backup_verifies_as_it_stands(played_sqlite: Store, tmp_path: Path) -> None:
    played, database = played_sqlite, Database(played_sqlite.url)
    made = backup(database, tmp_path / "copy.db")
    assert (made.runs, made.position) == ((RUN,), 139)
    copy = Database(str(made.file))
    report = verify(Log(copy), RUN, played.root / RUN, deep=True)
    assert (report.faults, report.heads, report.texts) == ([], 4 * (5 + 1), 91), "stages and commits"
    assert not list(tmp_path.glob("*.part*"))
    copy.close()
    database.close()


def test_postgresql_is_backed_up_by_its_own_tools(played_postgres: Store, tmp_path: Path) -> None:
    database = Database(played_postgres.url)
    with pytest.raises(ConfigError, match="own tools") as refused:
        backup(database, tmp_path / "copy.db")
    assert "pg_dump" in str(refused.value.hint)
    with pytest.raises(ConfigError, match="own tools") as refused:
        restore(tmp_path / "copy.db", database, replace=True)
    assert "pg_restore" in str(refused.value.hint)
    assert not list(tmp_path.iterdir())
    database.close()


def test_a_backup_is_taken_while_a_run_writes(mine: Store, tmp_path: Path) -> None:
    with mine.open(RUN) as memory:
        player = Player(memory)
        player.open(5)
        player.score(*(player.question(i, [("1", 6)], "kept") for i in range(20)))
        stop = threading.Event()

        def write() -> None:
            for i in range(20):
                player.fail(f"r5.q{i}.a0")
                if stop.is_set():
                    return

        writer = threading.Thread(target=write)
        writer.start()
        database = Database(mine.url)
        made = backup(database, tmp_path / "copy.db")
        stop.set()
        writer.join()
        database.close()
        copy = Database(str(made.file))
        assert verify(Log(copy), RUN, mine.root / RUN).ok  # where the writer ends, there is a head beyond it
        assert made.position >= 139
        copy.close()


def test_a_backup_never_replaces_a_file(database: Database, tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        backup(database, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "mine"


def test_a_restore_puts_the_old_state_back_and_keeps_what_was_there(
    mine: Store, tmp_path: Path, database: Database
) -> None:
    made = backup(database, tmp_path / "copy.db")
    with mine.open(RUN) as memory:
        player = Player(memory)
        player.open(5)
        player.score()
        player.trained()
        player.commit()
    done = restore(made.file, database, replace=True)
    assert contents(mine.root / "log.db") == ((RUN,), 139)
    old, heads = done.aside
    assert contents(old)[1] > 139
    assert heads.name.startswith("chain-heads.jsonl.before-restore")
    assert verify(Log(database), RUN, mine.root / RUN).ok  # without the head of round 5


def test_an_existing_database_is_replaced_only_when_asked(database: Database, tmp_path: Path) -> None:
    made = backup(database, tmp_path / "copy.db")
    with pytest.raises(ConfigError, match="exists"):
        restore(made.file, database)


def test_a_live_run_is_never_restored_over(mine: Store, tmp_path: Path, database: Database) -> None:
    made = backup(database, tmp_path / "copy.db")
    with mine.open(RUN) as memory:
        memory.claim()
        with pytest.raises(StoreError, match=f"run {RUN} is being written by"):
            restore(made.file, database, replace=True)
    assert contents(mine.root / "log.db") == ((RUN,), 139)


def test_a_damaged_database_can_be_replaced(mine: Store, tmp_path: Path) -> None:
    database = Database(mine.url)
    made = backup(database, tmp_path / "copy.db")
    database.close()
    (mine.root / "log.db").write_bytes(b"SQLite format 3\x00 but nothing after that")
    for companion in mine.root.glob("log.db-*"):
        companion.unlink()
    restore(made.file, Database(mine.url), replace=True)
    assert contents(mine.root / "log.db") == ((RUN,), 139)


def test_a_whole_database_passes_every_check(played: Store) -> None:
    looked = ["revision", "schema", "integrity", "positions", "heads"]
    looked += ["rights"] if played.dialect == "sqlite" else []
    assert findings(played.url) == dict.fromkeys(looked, True)


def test_the_checks_find_a_deleted_end_of_the_log(copied: Store) -> None:
    copied.tamper("DELETE FROM event WHERE position = (SELECT max(position) FROM event)")
    found = findings(copied.url)
    assert (found["positions"], found["heads"]) == (False, False)


def test_the_checks_find_a_damaged_index(mine: Store) -> None:
    with sqlite3.connect(mine.root / "log.db") as file:
        file.execute("PRAGMA writable_schema = ON")
        whole = "replace(sql, 'WHERE cause_id IS NOT NULL', '')"
        file.execute(f"UPDATE sqlite_master SET sql = {whole} WHERE name = 'ix_event_run_cause'")
    assert not findings(mine.url)["integrity"]  # it lacks rows now


def test_rebuilding_makes_changed_projections_right_again(copied: Store) -> None:
    from diagevo.memory.history import History

    copied.tamper(
        "UPDATE cause SET frequency = 9",
        "DELETE FROM cause_history WHERE round = 2",
        "DELETE FROM snapshot",
        "UPDATE round_summary SET active = 9",
        "DELETE FROM skill_node",
    )
    database = Database(copied.url)
    log = Log(database)
    assert not verify(log, RUN, copied.root / RUN).ok
    assert rebuild_projections(History(database, RUN)) == 4
    assert verify(log, RUN, copied.root / RUN).ok
    database.close()
