"""The hand-played run, played once a session and a database."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from diagevo.memory.history import History, open_history
from diagevo.memory.log.database import Database
from tests.contracts.databases import PostgresServer, PostgresStores, SQLiteStores, Store
from tests.memory.audit.played import play

RUN = "played"


@pytest.fixture(scope="session")
def played_sqlite(sqlite_stores: SQLiteStores, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = sqlite_stores.new(tmp_path_factory.mktemp("played"))
    play(store.url, RUN, root=store.root)
    return store


@pytest.fixture(scope="session")
def played_postgres(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = PostgresStores(postgres_server).new(tmp_path_factory.mktemp("played-pg"))
    play(store.url, RUN, root=store.root)
    return store


@pytest.fixture(params=["sqlite", "postgresql"])
def played(request: pytest.FixtureRequest) -> Store:
    """The run on either database, shared: for reading only."""
    name = "played_sqlite" if request.param == "sqlite" else "played_postgres"
    return request.getfixturevalue(name)


@pytest.fixture
def history(played: Store) -> Iterator[History]:
    """The run of either database, opened for reading."""
    opened = open_history(played.reading, RUN)
    yield opened
    opened.close()


@pytest.fixture
def mine(played_sqlite: Store, tmp_path: Path) -> Store:
    """A copy of the run that a test may change, on SQLite."""
    shutil.copytree(played_sqlite.root, tmp_path / "mine")
    return Store(f"sqlite:///{tmp_path / 'mine' / 'log.db'}", tmp_path / "mine")


@pytest.fixture
def my_history(mine: Store) -> Iterator[History]:
    opened = open_history(mine.url, RUN)
    yield opened
    opened.close()


@pytest.fixture
def database(mine: Store) -> Iterator[Database]:
    """Connections to the copy."""
    with closing(Database(mine.url)) as found:
        yield found


@pytest.fixture(params=["sqlite", "postgresql"])
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A copy of the run that a test may change, on either database."""
    if request.param == "sqlite":
        return request.getfixturevalue("mine")
    played: Store = request.getfixturevalue("played_postgres")
    shutil.copytree(played.root, tmp_path / "mine")
    return request.getfixturevalue("postgres_stores").copy(played, tmp_path / "mine")
