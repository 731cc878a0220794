"""Read-only SQL over a log. Writing is refused by the database itself, not by looking at the text."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Any

from diagevo.errors import ConfigError
from diagevo.memory.log.database import Database
from diagevo.memory.read.views import ABOUT

HINT = "use one read-only statement over the views: diagevo memory query --views"
REFUSED = "the database refuses it: "
NO_ROWS = "it returns no rows"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one statement may take."""

    seconds: float
    """Of the database's work; rows may wait for their reader as long as they like."""
    length: int
    """Bytes of a row, and on SQLite of a text on the way: it would make one of a gigabyte in a moment."""


PERSON = Limits(seconds=600, length=64 * 2**20)
AGENT = Limits(seconds=10, length=2**20)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Column names, and rows that are fetched as they are read."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


class StatementTimer:
    """Runs the steps of one statement, within its seconds. `explain` turns a driver's error into the one that
    is raised; None stands for its own: the statement is refused."""

    def __init__(
        self, seconds: float, failure: type[Exception], explain: Callable[[Exception], BaseException | None]
    ) -> None:
        self.seconds = seconds
        self.left = float(seconds)
        self.deadline = inf
        """Of the step that runs."""
        self._failure, self._explain = failure, explain

    def expired(self) -> bool:
        """Whether the step that runs has had all the time that was left."""
        return time.monotonic() > self.deadline

    def step(self, execute: Callable[[], Any]) -> Any:
        """What `execute` returns. Raises ConfigError where the statement is at fault, or took too long."""
        began = time.monotonic()
        self.deadline = began + self.left
        try:
            return execute()
        except (self._failure, ValueError) as error:
            if self.expired():
                raise ConfigError(
                    f"the statement took more than {self.seconds:g} s and was ended",
                    hint="query less: fewer rows of v_event, a WHERE, a LIMIT",
                ) from error
            raise self._explain(error) or refused(str(error).strip()) from error
        finally:
            self.deadline = inf
            self.left -= time.monotonic() - began

    def rows(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """The rows; what fails at a later one (a cast, a division) is the statement's fault too."""
        reading = iter(rows)
        while (row := self.step(lambda: next(reading, None))) is not None:
            yield row


def refused(said: str) -> ConfigError:
    return ConfigError(f"{REFUSED}{said.splitlines()[0]}", hint=HINT)


@contextmanager
def query(
    database: Database, sql: str, *, run_id: str | None = None, limits: Limits = PERSON
) -> Generator[QueryResult]:
    """Run one statement that reads; `:run` in it is the run's name. Rows stream while the context is open.

    Raises ConfigError where the database refuses the statement (a write, several statements, bad SQL), or it
    takes more than the limits allow.
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
