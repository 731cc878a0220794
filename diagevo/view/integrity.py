"""Whether a run is as it was written, as far as a page can afford to look."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select

from diagevo.memory.audit.verification import Verification
from diagevo.memory.audit.verify import verify
from diagevo.memory.log import heads
from diagevo.memory.log.heads import ChainHead
from diagevo.memory.log.log import EVENT, Head, Log

VERIFIED = 100_000
"""Events up to which a run is verified for its page, in seconds; of a longer one the last head is met."""


@dataclass(frozen=True, slots=True)
class LogCheck:
    """What is known of a run's log. `kept`: the last chain head outside the database, `same` whether the log
    has it; `report`: of a verification of the whole run as it is now."""

    head: Head
    kept: ChainHead | None
    same: bool
    report: Verification | None

    @property
    def ok(self) -> bool:
        """Nothing that was looked at differs."""
        return self.same if self.report is None else self.report.ok


class Checks:
    """Verifications of the runs of a database, each kept until its run goes on."""

    def __init__(self, log: Log, folder_of: Callable[[str], Path]) -> None:
        self._log, self._folder_of = log, folder_of
        self._done: dict[str, tuple[Head, Verification]] = {}
        self._before: dict[str, LogCheck] = {}

    def look(self, runs: Iterable[str]) -> None:
        """Check runs now, and tell of them as they are now. Heads outside the log are read before the log:
        inside of an older view of it a round that was committed meanwhile would be missing."""
        self._before = {run: self.full(run) for run in runs}

    def quick(self, run: str) -> LogCheck:
        """The last kept head against the log; and the verification, if it was made before."""
        if run in self._before:
            return self._before[run]
        kept = heads.read(self._folder_of(run) / heads.NAME).heads
        head = self._log.head(run)
        last = kept[-1] if kept else None
        same = True
        if last is not None:
            query = select(EVENT.c.hash).where(EVENT.c.run_id == run, EVENT.c.sequence == last.sequence)
            with self._log.database.read() as connection:
                same = connection.execute(query).scalar_one_or_none() == last.hash
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
