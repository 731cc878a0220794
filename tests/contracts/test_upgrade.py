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


KILLED_ON_POSTGRES = """
import os, signal, sys, psycopg
left = int(sys.argv.pop(1))
def counted(do):
    def counting(*given, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return do(*given, **named)
    return counting
for name in ("execute", "executemany"):
    setattr(psycopg.Cursor, name, counted(getattr(psycopg.Cursor, name)))
psycopg.Connection.commit = counted(psycopg.Connection.commit)
from diagevo.cli.main import app
try:
    app()
finally:
    print(-left)
"""
"""Likewise of a statement or a commit that goes to a server."""


def _upgrade(at: Path | str, statement: int, folder: Path) -> subprocess.CompletedProcess[str]:
    program = KILLED if isinstance(at, Path) else KILLED_ON_POSTGRES
    command = [sys.executable, "-c", program, str(statement), "db", "upgrade", "--db", str(at)]
    return subprocess.run(
        command, env=clean_environment(), cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_an_upgrade_that_is_killed_anywhere_on_postgres_is_done_again_to_the_same_content(
    postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    store = postgres_stores.new(tmp_path)
    histories(store, 5)
    plain = Store(postgres_stores.empty(), tmp_path)
    with closing(Database(store.url)) as new, closing(Database(plain.url)) as old:
        _old(new, old, "0002")
    undisturbed = postgres_stores.copy(plain, tmp_path).url
    done = _upgrade(undisturbed, 0, tmp_path)
    assert done.returncode == 0, done.stderr
    statements = int(done.stdout.splitlines()[-1])
    wanted = _content_on_server(undisturbed)
    for percent in (5, 35, 65, 90, 100):
        url = postgres_stores.copy(plain, tmp_path).url
        killed = _upgrade(url, statements * percent // 100, tmp_path)
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
        with closing(Database(url)) as left, left.read() as connection:
            assert revision(connection) in ("0002", HEAD)
        again = invoke("db", "upgrade", "--db", url)
        assert again.exit_code == 0, again.output
        assert _content_on_server(url) == wanted, percent


def _content_on_server(url: str) -> tuple[list[Any], list[Any], dict[str, list[Any]]]:
    made = "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' ORDER BY 1"
    columns = """SELECT table_name, column_name, data_type, is_nullable, column_default
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2"""
    with closing(Database(url)) as database, database.read() as connection:
        views, tables = (connection.exec_driver_sql(query).fetchall() for query in (made, columns))
        return list(views), list(tables), _rows(connection)


@pytest.mark.slow
@pytest.mark.parametrize("began", ["0001", "0002", "0003", "0004"])
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
    done = _upgrade(undisturbed / "log.db", 0, undisturbed)
    assert done.returncode == 0, done.stderr
    statements = int(done.stdout.splitlines()[-1])
    wanted = _content(undisturbed / "log.db")
    in_backup = 0
    # The backup is made of the first twenty statements or so.
    later = [statements * percent // 100 for percent in (10, 30, 50, 70, 85, 95, 99)]
    for at in (4, 16, 18, 20, *later):
        folder = shutil.copytree(plain, tmp_path / f"killed-{at}")
        file = folder / "log.db"
        killed = _upgrade(file, at, folder)
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
