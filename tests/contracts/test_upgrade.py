"""A database of an earlier revision becomes one of this version: every row of it is what a new one has.

Killed at any statement, an upgrade leaves the database that was there, and the next one does what it would.
"""

import json
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect, text

from diagevo.memory.audit.verify import verify
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import HEAD, revision, shape
from diagevo.memory.transfer.rebuilding import migrated
from tests.cli.program import clean_environment, invoke
from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.memory.read.histories import histories

VIEWS = json.loads((Path(__file__).parent / "frozen" / "views_0001.json").read_text(encoding="utf-8"))
PROJECTED = {"round_summary", "cause_history", "opened_round", "ingested_group", "cause_question"}


def _migrate(connection: Connection, dialect: str, to: str) -> None:
    """An empty database as the revision made it, the views of 0001 too."""
    with as_file(files("diagevo.migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder))
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        for name, query in VIEWS[dialect].items():
            connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}".replace("%", "%%"))
        command.upgrade(config, to)


def _old(new: Database, old: Database, revision: str) -> None:
    """Put into the empty database `old` what `new` has that is no projection, as of a revision."""
    with new.read() as source, old.write() as target:
        _migrate(target, new.dialect, revision)
        for name in set(inspect(target).get_table_names()) - PROJECTED - {"alembic_version"}:
            target.exec_driver_sql(f"DELETE FROM {name}")
            if rows := [dict(row) for row in source.execute(text(f"SELECT * FROM {name}")).mappings()]:
                known = {column["name"] for column in inspect(target).get_columns(name)}
                values = ", ".join(f":{column}" for column in rows[0] if column in known)
                target.execute(text(f"INSERT INTO {name} VALUES ({values})"), rows)


def _rows(connection: Connection) -> dict[str, list[Any]]:
    """Every table's rows."""
    names = set(inspect(connection).get_table_names()) - {"alembic_version"}
    return {
        name: sorted(map(repr, connection.execute(text(f"SELECT * FROM {name}")).mappings()))
        for name in names
    }


def test_an_upgrade_gives_what_a_new_database_has(
    store: Store, postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    runs = histories(store, 5)
    url = f"sqlite:///{tmp_path / 'old.db'}" if store.dialect == "sqlite" else postgres_stores.empty()
    with closing(Database(store.url)) as new, closing(Database(url)) as old:
        _old(new, old, "0001")
        assert migrated(old) == []
        with new.read() as source, old.read() as target:
            assert revision(target) == HEAD
            wanted, found = _rows(source), _rows(target)
            for rows in (wanted, found):  # a commit is recorded a moment before its projection
                rows["round_summary"] = [row.partition("'committed_at'")[0] for row in rows["round_summary"]]
            assert found == wanted
            assert all(len(found[name]) > 2 for name in PROJECTED)
        for run in runs:
            assert verify(Log(old), run, store.root / run).faults == []


KILLED = """
import os, signal, sqlite3, sys
left = int(sys.argv.pop(1))
connect = sqlite3.connect
def counted(*given, **named):
    connection = connect(*given, **named)
    connection.set_trace_callback(count)
    return connection
def count(statement):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
sqlite3.connect = sqlite3.dbapi2.connect = counted
from diagevo.cli.main import app
try:
    app()
finally:
    print(-left)
"""
"""`diagevo`, which kills itself before the SQL statement of the number that it gets first."""


def _upgrade(file: Path, statement: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", KILLED, str(statement), "db", "upgrade", "--db", str(file)]
    return subprocess.run(
        command, env=clean_environment(), cwd=file.parent, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("began", ["0001", "0002"])
def test_an_upgrade_that_is_killed_anywhere_is_done_again_to_the_same_content(
    sqlite_stores: SQLiteStores, tmp_path: Path, began: str
) -> None:
    fresh, plain = tmp_path / "new", tmp_path / "plain"
    fresh.mkdir()
    plain.mkdir()
    store = sqlite_stores.new(fresh)
    histories(store, 5)
    with closing(Database(store.url)) as new, closing(Database(f"sqlite:///{plain / 'log.db'}")) as old:
        _old(new, old, began)
    undisturbed = shutil.copytree(plain, tmp_path / "undisturbed")
    done = _upgrade(undisturbed / "log.db", 0)
    assert done.returncode == 0, done.stderr
    statements = int(done.stdout.splitlines()[-1])
    wanted = _content(undisturbed / "log.db")
    in_backup = 0
    # The backup is made of the first twenty statements or so.
    later = [statements * percent // 100 for percent in (10, 30, 50, 70, 85, 95, 99)]
    for at in (4, 16, 18, 20, *later):
        folder = shutil.copytree(plain, tmp_path / f"killed-{at}")
        file = folder / "log.db"
        killed = _upgrade(file, at)
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
        in_backup += any(folder.glob("*.part"))
        with closing(Database(f"sqlite:///{file}")) as left, left.read() as connection:
            assert revision(connection) in (began, HEAD), at
        again = invoke("db", "upgrade", "--db", str(file))
        assert again.exit_code == 0, again.output
        assert _content(file) == wanted
        assert not list(folder.glob("*.part*"))
        for backup in folder.glob("before-upgrade-*.db"):
            with closing(Database(f"sqlite:///{backup}")) as kept, kept.read() as connection:
                assert revision(connection) == began
    assert in_backup > 0, "a kill fell into the backup"


def _content(file: Path) -> tuple[dict[str, str], dict[str, list[Any]]]:
    with closing(Database(f"sqlite:///{file}")) as database, database.read() as connection:
        return shape(connection), _rows(connection)
