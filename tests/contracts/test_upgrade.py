"""A database of the first revision becomes one of this version: every row of it is what a new one has."""

import json
from contextlib import closing
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect, text

from diagevo.memory.audit.verify import verify
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import HEAD, revision
from diagevo.memory.transfer.rebuilding import migrated
from tests.contracts.databases import PostgresStores, Store
from tests.memory.read.histories import histories

VIEWS = json.loads((Path(__file__).parent / "frozen" / "views_0001.json").read_text(encoding="utf-8"))
PROJECTED = {"round_summary", "cause_history", "opened_round", "ingested_group", "cause_question"}


def _first_revision(connection: Connection, dialect: str) -> None:
    """An empty database as revision 0001 made it, views too."""
    with as_file(files("diagevo.migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder))
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    for name, query in VIEWS[dialect].items():
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}".replace("%", "%%"))


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
        with new.read() as source, old.write() as target:
            _first_revision(target, store.dialect)
            for name in set(inspect(target).get_table_names()) - PROJECTED - {"alembic_version"}:
                target.exec_driver_sql(f"DELETE FROM {name}")
                if rows := [dict(row) for row in source.execute(text(f"SELECT * FROM {name}")).mappings()]:
                    values = ", ".join(f":{column}" for column in rows[0])
                    target.execute(text(f"INSERT INTO {name} VALUES ({values})"), rows)
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
