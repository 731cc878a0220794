"""Revisions of the database. A new SQLite file is created and migrated; anything else is never changed
unasked."""

from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from sqlalchemy import Connection, create_engine, inspect, text

from diagevo.errors import DamagedError, StoreError
from diagevo.memory.log.database import Database
from diagevo.memory.log.location import shown
from diagevo.memory.log.tables import METADATA
from diagevo.private import private_file, private_folder

_VERSIONS = files("diagevo.migrations") / "versions"
HEAD = max(file.name[1:5] for file in _VERSIONS.iterdir() if file.name[0] == "r")
"""The revision that this code expects: the newest, r0003_….py. Alembic would be imported to ask it."""


def revision(connection: Connection) -> str | None:
    """The database's revision; None if no migration has run."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    if len(found) > 1 or not all(isinstance(version, str) for version in found):
        raise DamagedError(f"the database's revision is damaged: {found!r}")
    return found[0] if found else None


def upgrade(database: Database) -> None:
    """Run the migrations, in one transaction.

    Raises StoreError if the database belongs to another program.
    """
    refuse_foreign(database)
    with database.write() as connection:
        _migrate(connection)


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    with as_file(files("diagevo.migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@cache
def declared() -> dict[str, str]:
    """The shape of an SQLite database as the migrations make it now."""
    with create_engine("sqlite://").begin() as connection:
        _migrate(connection)
        return shape(connection)


def shape(connection: Connection) -> dict[str, str]:
    """For SQLite, by kind, name and table: the SQL of everything declared, except SQLite's own."""
    query = """SELECT type || ' ' || name || CASE WHEN type IN ('index', 'trigger')
        THEN ' on ' || tbl_name ELSE '' END AS what, sql
        FROM sqlite_master WHERE lower(substr(name, 1, 7)) <> 'sqlite_'"""
    return {row.what: row.sql for row in connection.exec_driver_sql(query)}


def prepare(database: Database, *, create: bool) -> None:
    """Make the database usable, or say why it is not. Raises StoreError.

    A missing SQLite file is created and migrated where `create` allows it; an empty PostgreSQL database is
    migrated likewise. An older or a newer revision is refused.
    """
    where = shown(database.url)
    file = database.file
    if file is None or file.exists() or not create:
        refuse_missing(database)
    else:
        try:
            private_folder(file.parent)
            private_file(file)  # its -wal and -shm get the same rights
        except OSError as error:
            raise StoreError(
                f"cannot make {file}: {error.strerror}",
                hint="name another place: --db FILE, or set DIAGEVO_HOME",
            ) from error
    with database.read() as connection:
        found = revision(connection)
    refuse_foreign(database)
    if found == HEAD:
        _refuse_loose(database)
        return
    if found is None and create:
        upgrade(database)
        return
    if found is None:
        raise StoreError(
            f"{where} holds no DiagEvo log", hint="name another database, or make one: diagevo init"
        )
    if found < HEAD:
        raise StoreError(
            f"{where} is at revision {found}, this version expects {HEAD}", hint="run: diagevo db upgrade"
        )
    refuse_newer(database)


def refuse_missing(database: Database) -> None:
    """Raises StoreError if there is no SQLite file; SQLite would create an empty one."""
    refuse_folder(database)
    if database.file is not None and not database.file.exists():
        under = "" if database.file.is_absolute() else f" in {Path.cwd()}"
        raise StoreError(f"there is no database at {database.file}{under}", hint="make one: diagevo init")


def refuse_folder(database: Database) -> None:
    """Raises StoreError if the SQLite file is a folder."""
    if database.file is not None and database.file.is_dir():
        raise StoreError(
            f"{database.file} is a folder, not a database",
            hint=f"name the file: --db {database.file / 'diagevo.db'}",
        )


def refuse_foreign(database: Database) -> None:
    """Raises StoreError if a database has tables or views that are not a log's: it belongs to another
    program, even if that also uses Alembic."""
    with database.read() as connection:
        looked = inspect(connection)
        tables = set(looked.get_table_names())
        if {"log", "run", "event", "alembic_version"} <= tables or not tables | set(looked.get_view_names()):
            return
    raise StoreError(
        f"{shown(database.url)} holds no DiagEvo log, and is not empty",
        hint="name another database, or make one: diagevo init",
    )


def _refuse_loose(database: Database) -> None:
    """Raises DamagedError if an SQLite table is not STRICT, or is not a table."""
    if database.dialect != "sqlite":
        return
    strict = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict"
    with database.read() as connection:
        found = set(connection.exec_driver_sql(strict).scalars())
    if loose := sorted(METADATA.tables.keys() - found):
        raise DamagedError(
            f"the database {shown(database.url)} is not as the migrations make it: {', '.join(loose)}"
            f" {'is not a STRICT table' if len(loose) == 1 else 'are not STRICT tables'}"
        )


def refuse_newer(database: Database) -> None:
    """Raises StoreError if the database is from a newer version: its log could not be fully read."""
    with database.read() as connection:
        found = revision(connection)
    if found is not None and found > HEAD:
        raise StoreError(
            f"{shown(database.url)} is at revision {found}, newer than this version's {HEAD}",
            hint="install the newer version of DiagEvo",
        )
