"""What a page is made of, before its template sees it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from diagevo.errors import NotFoundError
from diagevo.memory.audit.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.opening import runs_folder

ROWS = 200
"""Rows of a table on one page."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where pages are read from. `live`: served beside a run that may go on, not written into a folder."""

    database: Database
    folder: Path | None
    live: bool
    only: str | None = None
    """The one run that is shown, if not all are."""

    def runs(self) -> list[str]:
        """The runs that are shown."""
        return [run for run in Log(self.database).runs() if self.only in (None, run)]

    def history(self, run: str) -> History:
        """A run for reading. Raises NotFoundError."""
        if run not in self.runs():
            raise NotFoundError(f"there is no run {run}", hint="the runs are on the first page")
        return History(self.database, run, self.folder)

    def folder_of(self, run: str) -> Path:
        """Where the run's files are: chain heads, progress."""
        return runs_folder(self.database, self.folder) / run


@dataclass(frozen=True, slots=True)
class Page:
    """A template with what it shows. `trail`: the pages above it, by title and path."""

    template: str
    title: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    trail: tuple[tuple[str, str], ...] = ()


class Part(NamedTuple):
    """A page of a long table: which of how many."""

    number: int
    of: int
    rows: int = ROWS

    @property
    def start(self) -> int:
        return (self.number - 1) * self.rows


def part_of(total: int, wanted: str | None) -> Part:
    """The part that a path asks for, the first where it names none."""
    last = max(1, -(-total // ROWS))
    return Part(min(int(wanted or 1), last), last)
