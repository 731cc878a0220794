"""`store`: a database of its own for each test, on SQLite and on PostgreSQL."""

from tests.contracts.conftest import postgres_stores, sqlite_stores, store

__all__ = ["postgres_stores", "sqlite_stores", "store"]
