"""What one statement of a reader may take, and the error where it takes more or writes."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

from diagevo.errors import ConfigError

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
