"""Opening a database: what is there, what is old or new, what is none."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

import diagevo
from diagevo.errors import ConfigError, ConflictError, MissingDependencyError, NotFoundError, StoreError
from diagevo.evaluation import oracle
from diagevo.evaluation import store as store_tables
from diagevo.memory.log import migrate, tables
from diagevo.memory.log.database import Database
from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.memory.audit.played import play


@pytest.mark.parametrize(
    ("revision", "said", "hint"),
    [
        ("0000", f"is at revision 0000, this version expects {migrate.HEAD}", "run: diagevo db upgrade"),
        ("9999", "newer than this version's", "install the newer version"),
    ],
)
def test_a_database_of_another_version_is_refused_and_left_alone(
    store: Store, revision: str, said: str, hint: str
) -> None:
    store.tamper(f"UPDATE alembic_version SET version_num = '{revision}'")
    with pytest.raises(StoreError) as caught:
        store.open()
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == 5
    with store.log() as log, log.database.read() as connection:
        assert migrate.revision(connection) == revision


def test_the_tables_are_those_of_the_migrations(store: Store) -> None:
    assert oracle.ORACLE.metadata is store_tables.RESULT.metadata is tables.METADATA
    with store.log() as log, log.database.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.METADATA) == []


def test_a_missing_file_is_made_and_migrated_only_where_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.db"
    with pytest.raises(StoreError, match="there is no database at"):
        diagevo.open(str(path), run="a", create=False)
    assert not path.exists()
    diagevo.open(str(path), run="a").close()
    with pytest.raises(NotFoundError, match="has no runs yet"):
        diagevo.open(str(path), run="a", create=False)


def test_an_empty_postgresql_database_is_migrated(postgres_stores: PostgresStores, tmp_path: Path) -> None:
    with diagevo.open(postgres_stores.empty(), run="a", root=tmp_path) as memory:
        assert memory.open_round(1).epsilon == 1


def test_a_file_that_is_no_log_is_refused_and_left_alone(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"this is not a database, and long enough to be read as one" * 40)
    with pytest.raises(StoreError, match="is no SQLite database, or its first bytes are damaged"):
        diagevo.open(str(garbage), run="a")
    assert garbage.read_bytes().startswith(b"this is not")
    other = tmp_path / "other.db"
    database = Database(str(other))
    with database.write() as connection:
        connection.execute(text("CREATE TABLE recipes (name TEXT)"))
    database.close()
    with pytest.raises(StoreError, match="holds no DiagEvo log"):
        diagevo.open(str(other), run="a")


@pytest.mark.parametrize(
    ("statements", "loose"),
    [
        (
            ["DROP TABLE reply", "CREATE TABLE reply (model TEXT, request TEXT)"],
            "reply is not a STRICT table",
        ),
        (
            ["DROP TABLE run", "CREATE VIRTUAL TABLE run USING fts5(run_id)", "DROP TABLE vector"],
            "run, vector are not STRICT tables",
        ),
    ],
)
def test_a_file_whose_tables_take_any_type_is_refused(
    sqlite_stores: SQLiteStores, tmp_path: Path, statements: list[str], loose: str
) -> None:
    store = sqlite_stores.new(tmp_path)
    with closing(sqlite3.connect(tmp_path / "log.db")) as file:
        for statement in ("PRAGMA legacy_alter_table = ON", *statements):
            file.execute(statement)
    with pytest.raises(StoreError, match=loose):
        store.open()


@pytest.mark.parametrize("kept_with", [None, "0001", "0004", "ae1027a6acf"])
def test_a_database_of_somebody_else_is_neither_read_nor_upgraded(
    sqlite_stores: SQLiteStores,
    postgres_stores: PostgresStores,
    tmp_path: Path,
    kept_with: str | None,
) -> None:
    """Also where they keep it with Alembic, whose first revision may have our name."""
    for url in (f"sqlite:///{tmp_path / 'other.db'}", postgres_stores.empty()):
        database = Database(url)
        with database.write() as connection:
            connection.execute(text("CREATE TABLE recipes (name TEXT)"))
            if kept_with is not None:
                connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
                connection.execute(text(f"INSERT INTO alembic_version VALUES ('{kept_with}')"))
        with pytest.raises(StoreError, match="holds no DiagEvo log, and is not empty"):
            migrate.upgrade(database)
        with pytest.raises(StoreError, match="holds no DiagEvo log, and is not empty") as caught:
            migrate.prepare(database, create=True)
        assert caught.value.exit_code == 5
        with database.read() as connection:
            there = {"recipes"} if kept_with is None else {"recipes", "alembic_version"}
            assert set(inspect(connection).get_table_names()) == there
        database.close()


def test_an_sqlite_that_is_too_old_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(MissingDependencyError, match=r"needs SQLite 3\.37 or newer") as caught:
        diagevo.open(str(tmp_path / "log.db"), run="a")
    assert caught.value.exit_code == 4


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "log.db"
    with pytest.raises(StoreError) as caught:
        diagevo.open(str(place), run="a")
    assert caught.value.message == f"cannot make {place}: File exists"
    assert caught.value.hint == "name another place: --db FILE, or set DIAGEVO_HOME"


def test_a_database_that_another_program_holds_is_said_to_be_locked(
    sqlite_stores: SQLiteStores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagevo.memory.log.database.BUSY_SECONDS", 0)
    store = sqlite_stores.new(tmp_path)
    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="is locked"), store.open() as memory:
        memory.open_round(1)
    other.close()


@pytest.mark.parametrize("url", ["mysql://x/y", "sqlite://", "sqlite:///:memory:", "not a url://"])
def test_an_address_that_cannot_hold_a_log_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        diagevo.open(url, run="a")


@pytest.mark.parametrize("run", ["", "../escape", "a/b", ".hidden", "static", "index.html"])
def test_a_run_is_named_like_a_folder(tmp_path: Path, run: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a run"):
        diagevo.open(str(tmp_path / "log.db"), run=run)


def test_a_run_whose_folder_cannot_be_made_is_refused_before_it_is_played(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for name, what in (
        ("gone", "is not a folder"),
        ("loop", "is not a folder"),
        ("diagevo.db", "is a place of the database"),
        ("diagevo.db-wal", "is a place of the database"),
    ):
        with pytest.raises(ConfigError, match=f"'{name}' cannot name a run here: .* {what}"):
            diagevo.open(f"sqlite:///{tmp_path}/diagevo.db", run=name)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    diagevo.open(f"sqlite:///{tmp_path}/diagevo.db", run="link").close()


def test_a_run_of_another_database_in_the_same_folder_keeps_its_name_and_its_heads(tmp_path: Path) -> None:
    """Else the second's heads would call the first rewritten, and their checkpoints would mix."""
    play(str(tmp_path / "one.db"), "mine", root=tmp_path, rounds=1)
    heads = (tmp_path / "mine" / "chain-heads.jsonl").read_bytes()
    with (
        diagevo.open(str(tmp_path / "two.db"), run="mine") as memory,
        pytest.raises(ConflictError, match="belongs to a run mine of another database") as refused,
    ):
        memory.open_round(1)
    assert "give this run another name" in str(refused.value.hint)
    assert (tmp_path / "mine" / "chain-heads.jsonl").read_bytes() == heads
    with diagevo.open(str(tmp_path / "two.db"), run="other") as memory:
        assert memory.open_round(1).epsilon == 1


def test_importing_the_library_is_cheap_and_opening_needs_no_training_stack(tmp_path: Path) -> None:
    code = f"""
import sys, diagevo
assert not {{"sqlalchemy", "pydantic", "numpy"}} & set(sys.modules), "import diagevo is not lazy"
diagevo.open({str(tmp_path / "log.db")!r}, run="a").open_round(1).draw(3, seed=1)
heavy = {{"torch", "transformers", "trl", "vllm", "lancedb", "polars"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
