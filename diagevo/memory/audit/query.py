"""Read-only SQL over a log. The database itself refuses writes; the text is not inspected."""

from collections.abc import Generator
from contextlib import contextmanager

from diagevo.memory.audit.query_limits import PERSON, Limits, QueryResult
from diagevo.memory.log.database import Database
from diagevo.memory.read.views import ABOUT


@contextmanager
def query(
    database: Database, sql: str, *, run_id: str | None = None, limits: Limits = PERSON
) -> Generator[QueryResult]:
    """Run one read-only statement; `:run` in it is the run's name. Rows stream while the context is open.

    Raises ConfigError if the database refuses the statement (a write, several statements, bad SQL), or if it
    exceeds the limits.
    """
    if database.dialect == "sqlite":
        from diagevo.memory.audit.query_sqlite import execute
    else:
        from diagevo.memory.audit.query_postgres import execute  # psycopg is an extra
    with execute(database, sql, run_id, limits) as answer:
        yield answer


def view_columns(database: Database) -> dict[str, tuple[str, ...]]:
    """The columns of each stable view, as the database has them."""
    found: dict[str, tuple[str, ...]] = {}
    for view in ABOUT:
        with query(database, f"SELECT * FROM {view} WHERE 1 = 0") as answer:
            found[view] = answer.columns
    return found
