"""`store`: every test of this folder runs on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.memory.play import candidate, first_round


@pytest.fixture(scope="session")
def sqlite_stores(tmp_path_factory: pytest.TempPathFactory) -> SQLiteStores:
    return SQLiteStores(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def postgres_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStores]:
    stores = PostgresStores(tmp_path_factory.mktemp("pg"))
    yield stores
    stores.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    name = "sqlite_stores" if request.param == "sqlite" else "postgres_stores"
    return request.getfixturevalue(name).new(tmp_path)


@pytest.fixture
def played(store: Store) -> Store:
    """Two committed rounds; event 9 is CandidateScored of round 1."""
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 2)])
        memory.open_round(2)
        memory.score([candidate("r2.q0", 9, cause="c1")])
        memory.commit()
    return store
