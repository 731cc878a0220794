"""The limits of one read-only statement, and the error if it exceeds them or writes."""

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
    """The limits of one statement."""

    seconds: float
    """Of database time; rows may wait for their reader as long as they like."""
    length: int
    """Maximum bytes of a row, and on SQLite of an intermediate text, which could reach a gigabyte in a
    moment."""


PERSON = Limits(seconds=600, length=64 * 2**20)
AGENT = Limits(seconds=10, length=2**20)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Column names, and rows that are fetched as they are read."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


class StatementTimer:
    """Runs the steps of one statement within its time limit. `explain` turns a driver's error into the one to
    raise; None means the default: the statement is refused."""

    def __init__(
        self, seconds: float, failure: type[Exception], explain: Callable[[Exception], BaseException | None]
    ) -> None:
        self.seconds = seconds
        self.left = float(seconds)
        self.deadline = inf
        """The deadline of the running step."""
        self._failure, self._explain = failure, explain

    def expired(self) -> bool:
        """Whether the running step has used up the time left."""
        return time.monotonic() > self.deadline

    def step(self, execute: Callable[[], Any]) -> Any:
        """What `execute` returns. Raises ConfigError if the statement is at fault or took too long."""
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
        """The rows; a failure at a later row (a cast, a division) is the statement's fault too."""
        reading = iter(rows)
        while (row := self.step(lambda: next(reading, None))) is not None:
            yield row


def refused(said: str) -> ConfigError:
    return ConfigError(f"{REFUSED}{said.splitlines()[0]}", hint=HINT)
