"""The chain's head outside the database: one line for each commit, stage end and writer's exit, in the run's
folder. Someone who rewrites the whole log with fresh hashes must also change this file and every copy of it
(docs/howto/heads.md). Lines are only ever added, so the first one about an event is the one to believe. A
head vouches for everything before it: the next one makes up for one lost to a kill.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from diagevo.errors import ConfigError, ConflictError, StoreError
from diagevo.memory.events.records import Recorded
from diagevo.private import private, private_folder, sync_names

NAME = "chain-heads.jsonl"


class RunEntry(msgspec.Struct, frozen=True):
    """What the database records about a run besides its events: when it was created there, and for an
    imported run, with which head. No event's hash covers it, so the heads do."""

    created_at: str
    imported: str | None


class ChainHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The end of the chain right after a commit, a stage, or a writer's last event."""

    round: int
    sequence: int
    hash: str
    run: RunEntry | None = None
    """None in lines of older versions, and in those made from events."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of heads: its complete lines with their numbers, and the numbers of the others."""

    file: Path
    lines: tuple[tuple[int, ChainHead], ...]
    broken: tuple[int, ...]

    @property
    def heads(self) -> list[ChainHead]:
        return [head for _, head in self.lines]

    @property
    def last(self) -> int:
        """The last sequence that a line names; 0 if there is none."""
        return max((head.sequence for head in self.heads), default=0)


def of(record: Recorded, run: RunEntry | None = None) -> ChainHead:
    """The head of a chain that ends with this event."""
    return ChainHead(record.round, record.sequence, record.hash, run)


def _chain(head: ChainHead) -> ChainHead:
    return replace(head, run=None)


def append(folder: Path, head: ChainHead) -> None:
    """Add a line and flush it to disk before returning. A line cut short by a crash stays a separate
    line."""
    file = folder / NAME
    try:
        private_folder(folder)
        with open(file, "a+b", opener=private) as lines:
            begun = lines.tell() > 0
            if begun:
                lines.seek(-1, os.SEEK_END)
                if lines.read(1) != b"\n":
                    lines.write(b"\n")
            lines.write(msgspec.json.encode(head) + b"\n")
            lines.flush()
            os.fsync(lines.fileno())
        if not begun:
            sync_names(folder)
    except OSError as error:
        raise StoreError(
            f"the chain head {file} cannot be written: {error.strerror}",
            hint="make it writable; the next head covers what this one would have",
        ) from error


def read(file: Path) -> Kept:
    """All lines; none if there is no file. Raises StoreError if it cannot be read."""
    lines: list[tuple[int, ChainHead]] = []
    broken: list[int] = []
    try:
        written = file.read_bytes()
    except FileNotFoundError:
        written = b""
    except OSError as error:
        raise StoreError(
            f"the chain heads {file} cannot be read: {error.strerror}", hint="name a file that you may read"
        ) from error
    for number, line in enumerate(written.split(b"\n"), 1):
        if not line:
            continue
        try:
            lines.append((number, msgspec.json.decode(line, type=ChainHead)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            broken.append(number)
    return Kept(file, tuple(lines), tuple(broken))


class Comparison:
    """Compares every line of a file with the log, in one pass over its events."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.compared = 0
        self.uncovered: list[Recorded] = []
        """Commits without a line."""
        self.last = 0
        """Sequence of the last event seen."""
        self._waiting: dict[int, list[tuple[int, ChainHead]]] = {}
        for number, head in kept.lines:
            self._waiting.setdefault(head.sequence, []).append((number, head))

    def meet(self, record: Recorded) -> Iterator[str]:
        """What is wrong with the lines about this event. The first is compared with the log, each other
        one with the first."""
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
        elif _chain(first) != of(record):
            yield (
                f"{self._line(number)} names round {first.round}; its event is of round {record.round}:"
                " the line was changed"
            )
        for other, head in lines[1:]:
            if _chain(head) != _chain(first):
                yield (
                    f"{self._line(other)} names another head for event {head.sequence} than line {number}:"
                    " one of them was added later, and the first counts"
                )

    def of_run(self, entry: RunEntry) -> Iterator[str]:
        """What is otherwise in the database than the first line says that speaks of it. A run that was lost
        and imported again has another one from the line on that its import wrote: the head that it came with.
        Other lines have what the database said by then, after a change too."""
        number, kept = 0, entry
        for place, head in self.kept.lines:
            if head.run is not None and (not number or head.run.imported == head.hash):
                number, kept = place, head.run
        if kept.created_at != entry.created_at:
            yield (
                f"the run came into the database at {kept.created_at}, which says {entry.created_at}"
                f" ({self._line(number)})"
            )
        if kept.imported != entry.imported:
            yield (
                f"the run {_origin(kept)}, the database says that it {_origin(entry)}: this decides whether"
                f" its endpoints and its code are trusted ({self._line(number)})"
            )

    def rest(self) -> Iterator[str]:
        """After the last event: lines about events that do not exist."""
        for sequence, lines in sorted(self._waiting.items()):
            number, head = lines[0]
            yield (
                f"event {sequence}, in round {head.round}, ended the chain, and the database does not have it"
                f" ({self._line(number)})"
            )

    def _line(self, number: int) -> str:
        return f"line {number} of {self.kept.file}"


def _origin(run: RunEntry) -> str:
    return "is one's own" if run.imported is None else f"came from the bundle {run.imported[:12]}…"


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
    """The heads in a file kept elsewhere. Raises ConfigError if there are none."""
    if not file.exists():
        raise ConfigError(f"there is no file {file}", hint="name a copy of a run's chain-heads.jsonl")
    kept = read(file)
    if not kept.lines:
        raise ConfigError(
            f"there is no chain head in {file}",
            hint="name a copy of a run's chain-heads.jsonl",
        )
    return kept


def notes_of_own(own: Comparison) -> Iterator[str]:
    """Notes on what the run's own file cannot show."""
    kept = own.kept
    if not kept.lines:
        yield f"no chain head outside the database ({kept.file}): a full rewrite would go unnoticed"
    elif own.last > kept.last or own.uncovered:
        newer = read(kept.file)  # a commit is visible a moment before its head is written
        there = {head.sequence for head in newer.heads}
        missing = [record for record in own.uncovered if record.sequence not in there]
        if between := [record.round for record in missing if record.sequence < kept.last]:
            yield f"no chain head for {_rounds(between)} in {kept.file}; that of a later one covers them"
        if last := [record.round for record in missing if record.sequence > kept.last]:
            yield (
                f"no chain head for {_rounds(last)} in {kept.file}: a rewrite of it before the next head"
                " would go unnoticed"
            )
        elif own.last > newer.last:
            yield (
                f"the last chain head in {kept.file} is of event {newer.last} of {own.last}: a "
                "change to later ones would go unnoticed"
            )
    yield from _broken(kept)


def notes_of_copy(copied: Comparison) -> Iterator[str]:
    """Notes on what a copy cannot show."""
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
