"""The heads that are kept outside the database, against the log: compared, and completed after a kill."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from diagevo.errors import ConfigError, ConflictError
from diagevo.memory.events.records import GENESIS, Recorded
from diagevo.memory.log.heads import NAME, ChainHead, Kept, append, of, read
from diagevo.memory.log.log import Log, now


class Comparison:
    """Every line of a file against the log, whose events come by once, in order."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.compared = 0
        self.uncovered: list[Recorded] = []
        """Commits that no line speaks of."""
        self.last = 0
        """Sequence of the last event that came by."""
        self._waiting: dict[int, list[tuple[int, ChainHead]]] = {}
        for number, head in kept.lines:
            self._waiting.setdefault(head.sequence, []).append((number, head))

    def meet(self, record: Recorded) -> Iterator[str]:
        """What is wrong with the lines about this event. The first is held against the log, each other one
        against the first."""
        self.last = record.sequence
        lines = self._waiting.pop(record.sequence, [])
        self.compared += len(lines)
        if not lines:
            if record.type == "RoundCommitted":
                self.uncovered.append(record)
            return
        number, first = lines[0]
        if first.hash != record.hash:
            yield (
                f"event {first.sequence}, in round {first.round}, ended the chain in {first.hash[:12]}…, the"
                f" database says {str(record.hash)[:12]}…: the log was rewritten ({self._line(number)})"
            )
        elif not _same(first, of(record)):
            yield (
                f"{self._line(number)} names round {first.round}; its event is of round {record.round}:"
                " the line was changed"
            )
        for other, head in lines[1:]:
            if not _same(head, first):
                yield (
                    f"{self._line(other)} names another head for event {head.sequence} than line {number}:"
                    " one of them was added later, and the first counts"
                )

    def rest(self) -> Iterator[str]:
        """After the last event: lines about events that are not there."""
        for sequence, lines in sorted(self._waiting.items()):
            number, head = lines[0]
            yield (
                f"event {sequence}, in round {head.round}, ended the chain, and the database does not have it"
                f" ({self._line(number)})"
            )

    def _line(self, number: int) -> str:
        return f"line {number} of {self.kept.file}"


def _same(one: ChainHead, other: ChainHead) -> bool:
    """But for when they were written."""
    return msgspec.structs.replace(one, late=None) == msgspec.structs.replace(other, late=None)


def complete(log: Log, run_id: str, folder: Path) -> None:
    """Write the heads that are missing after the last line, marked as late: a kill between a commit and
    `append` left them out.

    Only where the whole log is one chain and every line is true of it. Else somebody may have rewritten the
    log, and a fresh head would cover it up: nothing is written, and `memory verify` tells.
    """
    newest = next(log.read(run_id, types=["RoundCommitted"], newest_first=True, limit=1), None)
    if newest is None:
        return
    kept = read(folder / NAME)
    if newest.sequence <= kept.last:
        return
    comparison = Comparison(kept)
    previous = GENESIS
    for sequence, record in enumerate(log.read(run_id), 1):
        if (record.sequence, record.previous_hash, record.hash) != (sequence, previous, record.computed_hash):
            return
        if any(comparison.meet(record)):
            return
        previous = record.hash
    if any(comparison.rest()):
        return
    when = now()
    for record in comparison.uncovered:
        if record.sequence > kept.last:
            append(folder, of(record, when))


def refuse_another(run_id: str, folder: Path) -> None:
    """Raises ConflictError where the folder of a run without an event has chain heads: they are of a run of
    this name in another database, or in one that was removed."""
    if read(folder / NAME).lines:
        raise ConflictError(
            f"the folder {folder} belongs to a run {run_id} of another database: its chain heads are there",
            hint="give this run another name, or put its database into another folder;"
            " if that database is gone, move the folder away",
        )


def copy_of(file: Path) -> Kept:
    """The heads of a file that was kept elsewhere. Raises ConfigError where there are none."""
    if not file.exists():
        raise ConfigError(f"there is no file {file}", hint="diagevo memory verify --heads-out FILE makes one")
    kept = read(file)
    if not kept.lines:
        raise ConfigError(
            f"there is no chain head in {file}",
            hint="diagevo memory verify --heads-out FILE writes such a file",
        )
    return kept


def notes_of_own(own: Comparison) -> Iterator[str]:
    """What the run's own file cannot tell."""
    kept = own.kept
    if not kept.lines:
        yield f"no chain head outside the database ({kept.file}): a full rewrite would go unnoticed"
    elif own.last > kept.last or own.uncovered:
        newer = read(kept.file)  # a commit is seen a moment before its head is there
        there = {head.sequence for head in newer.heads}
        missing = [record for record in own.uncovered if record.sequence not in there]
        if between := [record.round for record in missing if record.sequence < kept.last]:
            yield f"no chain head for {_rounds(between)} in {kept.file}; that of a later one covers them"
        if last := [record.round for record in missing if record.sequence > kept.last]:
            yield (
                f"no chain head for {_rounds(last)} in {kept.file}: a rewrite of it would go "
                "unnoticed; the head"
                " is written, marked as late, when the run is next written to"
            )
        elif own.last > newer.last:
            yield (
                f"the last chain head in {kept.file} is of event {newer.last} of {own.last}: a "
                "change to later ones would go unnoticed"
            )
    for head in kept.heads:
        if head.late is not None:
            yield (
                f"the chain head of round {head.round} was written late, at {head.late}: it "
                "cannot reveal what was done to the log between the commit and then"
            )
    yield from _broken(kept)


def notes_of_copy(copied: Comparison) -> Iterator[str]:
    """What a copy cannot tell."""
    kept = copied.kept
    if after := [record.round for record in copied.uncovered if record.sequence > kept.last]:
        yield f"{kept.file} says nothing of {_rounds(after)}: it is older"
    yield from _broken(kept)


def _broken(kept: Kept) -> Iterator[str]:
    for number in kept.broken:
        yield f"line {number} of {kept.file} is not a whole chain head, and was not compared"


def _rounds(rounds: Sequence[int]) -> str:
    """`round 3`, or `rounds 3, 4, 5`."""
    return f"round{'s' if len(rounds) > 1 else ''} {', '.join(map(str, rounds))}"
