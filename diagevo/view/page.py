"""The data of a page before its template is rendered, and whether its run is as it was written."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from diagevo.errors import NotFoundError
from diagevo.memory.audit.verification import Verification
from diagevo.memory.audit.verify import verify
from diagevo.memory.compare.run_slices import SlicedRun
from diagevo.memory.history import History
from diagevo.memory.log import heads
from diagevo.memory.log.database import Database
from diagevo.memory.log.heads import ChainHead
from diagevo.memory.log.log import Head, Log
from diagevo.memory.places import runs_folder
from diagevo.memory.read.responses import Responses
from diagevo.memory.read.runs import RunStory, run_line, run_story

TEXT = 200_000
"""Maximum characters of a model's text on a page; the page says how many are left out."""
ROWS = 200
"""Rows of a table on one page."""
SEARCHED = 3
"""Maximum runs whose search index is kept."""


VERIFIED = 100_000
"""Maximum events of a run that is verified for its page, which takes seconds; for a longer one only the last
head is compared."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A finding in words, and the page with its evidence."""

    name: str
    text: str
    evidence: str | None = None


Cell = tuple[str, bool]
"""The content of a table cell, and whether it is a number."""
Grid = Sequence[Sequence[Cell]]
"""A table: the header, then the rows."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure or table of the report, or what is missing and the command that supplies it."""

    name: str
    title: str
    caption: str = ""
    grid: Grid = ()
    """Its rows, or the first of them."""
    rows: int = 0
    """The total number of rows."""
    picture: str | None = None
    """Its files in the pages' folder, without the suffixes .png, .svg and .csv."""
    missing: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class LogCheck:
    """The checks of a run's log. `kept`: the last chain head outside the database, `same`: whether the log
    has it; `report`: of a verification of the whole current run."""

    head: Head
    kept: ChainHead | None
    same: bool
    report: Verification | None

    @property
    def ok(self) -> bool:
        """Nothing that was checked differs."""
        return self.same if self.report is None else self.report.ok


class Checks:
    """Verifications of a database's runs, each cached until its run changes."""

    def __init__(self, log: Log, folder_of: Callable[[str], Path]) -> None:
        self._log, self._folder_of = log, folder_of
        self._done: dict[str, tuple[Head, Verification]] = {}
        self._before: dict[str, LogCheck] = {}

    def look(self, runs: Iterable[str]) -> None:
        """Check the current runs. Heads outside the log are read before the log: in an older view of it a
        round committed meanwhile would be missing."""
        self._before = {run: self.full(run) for run in runs}

    def quick(self, run: str) -> LogCheck:
        """The last kept head against the log, and an earlier verification if there is one."""
        if run in self._before:
            return self._before[run]
        kept = heads.read(self._folder_of(run) / heads.NAME).heads
        head = self._log.head(run)
        last = kept[-1] if kept else None
        same = last is None or self._log.hash_of(run, last.sequence) == last.hash
        done = self._done.get(run)
        return LogCheck(head, last, same, done[1] if done and done[0] == head else None)

    def full(self, run: str) -> LogCheck:
        """As `quick`, with the verification of a run of up to VERIFIED events."""
        found = self.quick(run)
        if run not in self._before and found.report is None and found.head.sequence <= VERIFIED:
            report = verify(self._log, run, self._folder_of(run))
            self._done[run] = found.head, report
            return LogCheck(found.head, found.kept, found.same, report)
        return found


class Site:
    """The source of pages. `live`: served while a run may continue, not exported. `only`: the runs
    shown, if not all. `drawn`: the report's figures of the first run."""

    def __init__(
        self,
        database: Database,
        *,
        live: bool,
        only: Sequence[str] = (),
        drawn: Sequence[Drawn] = (),
    ) -> None:
        self.database, self.live, self.only, self.drawn = database, live, only, drawn
        self._log = Log(database)
        self._read: dict[str, History] = {}
        self._searched: dict[str, tuple[Head, Responses]] = {}
        self._sliced: dict[str, SlicedRun] = {}
        self._making = Lock()
        self._told: dict[str, tuple[Head, RunStory]] = {}
        self.checks = Checks(self._log, self.folder_of)

    def runs(self) -> list[str]:
        return [run for run in self._log.runs() if not self.only or run in self.only]

    def history(self, run: str) -> History:
        """A read-only run, cached until it changes. Raises NotFoundError."""
        if run not in self.runs():
            raise NotFoundError(f"there is no run {run}", hint="the runs are on the first page")
        known = self._read.get(run)
        if known is None or known.end.sequence != self._log.head(run).sequence:
            known = History(self.database, run)
            _ = known.end  # read in the one moment of this page, before another page reads the rest
            self._read[run] = known
        return known

    def story(self, run: str) -> RunStory:
        """The whole run. It reads every ingested prompt, so everything but its line, which names the
        writer, is cached until the run changes."""
        head = self.head(run)
        if (known := self._told.get(run)) is None or known[0] != head:
            known = self._told[run] = head, run_story(self.history(run))
        return replace(known[1], line=run_line(self.history(run)))

    def sliced(self, run: str) -> SlicedRun:
        """The run by models and steps, cached until it changes."""
        history = self.history(run)
        if (known := self._sliced.get(run)) is None or known.history is not history:
            known = self._sliced[run] = SlicedRun(history)
        return known

    def responses(self, run: str) -> Responses:
        """The search index of the run's current responses: cached for the last few runs, until they
        change."""
        with self._making:
            head = self.head(run)
            known = self._searched.pop(run, None)
            if known is None or known[0] != head:
                known = head, Responses(self.history(run))
            self._searched[run] = known
            while len(self._searched) > SEARCHED:
                del self._searched[next(iter(self._searched))]
            return known[1]

    def head(self, run: str) -> Head:
        """The run's current chain head."""
        return self._log.head(run)

    def drawn_of(self, run: str) -> Sequence[Drawn]:
        """The report's figures of a run."""
        return self.drawn if run in self.only[:1] else ()

    def folder_of(self, run: str) -> Path:
        """The folder of the run's files: chain heads, progress."""
        return runs_folder(self.database) / run


@dataclass(frozen=True, slots=True)
class Page:
    """A template with its data. `trail`: the pages above it, by title and path."""

    template: str
    title: str
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    trail: tuple[tuple[str, str], ...] = ()


class TablePage(NamedTuple):
    """A page of a long table: which of how many."""

    number: int
    of: int
    rows: int = ROWS

    @property
    def start(self) -> int:
        return (self.number - 1) * self.rows


def part_of(total: int, wanted: str | None, rows: int = ROWS) -> TablePage:
    """The part that a path names, by default the first. Raises NotFoundError beyond the last."""
    last, number = max(1, -(-total // rows)), int(wanted or 1)
    if number > last:
        raise NotFoundError(f"there is no part {number} of this page", hint=f"its last one is {last}")
    return TablePage(number, last, rows)
