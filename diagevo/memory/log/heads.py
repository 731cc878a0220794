"""The chain's head outside the database: a line a commit, a stage and a writer's end, in the run's folder.

Whoever rewrites the whole log with fresh hashes must also reach this file, or a copy of it that lies out of
reach (docs/howto/heads.md). Lines are only ever added, so the first that speaks of an event is the one to
believe. A head vouches for all before it: one that a kill left out is made up for by the next.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from diagevo.errors import StoreError
from diagevo.memory.events.records import Recorded
from diagevo.private import private, private_folder, sync_names

NAME = "chain-heads.jsonl"


class ChainHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the chain stood right after a commit, the end of a stage, or the last event of a writer."""

    round: int
    sequence: int
    hash: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of heads: its whole lines with their numbers, and the numbers of the others."""

    file: Path
    lines: tuple[tuple[int, ChainHead], ...]
    broken: tuple[int, ...]

    @property
    def heads(self) -> list[ChainHead]:
        return [head for _, head in self.lines]

    @property
    def last(self) -> int:
        """The last sequence that a line names; 0 where there is none."""
        return max((head.sequence for head in self.heads), default=0)


def of(record: Recorded) -> ChainHead:
    """The head of a chain that ends in this event."""
    return ChainHead(record.round, record.sequence, record.hash)


def append(folder: Path, head: ChainHead) -> None:
    """Add a line, and have it on the disk before returning. What a crash cut short stays a line of its
    own."""
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


def keep_only(folder: Path, kept: Iterable[ChainHead], aside: Path) -> None:
    """Put a file with these heads in the place of the old one, which is named `aside`, in one step: after a
    crash there is the one or the other. Raises OSError."""
    file, new = folder / NAME, folder / f"{NAME}.new"
    new.unlink(missing_ok=True)
    with open(new, "wb", opener=private) as lines:
        lines.writelines(msgspec.json.encode(head) + b"\n" for head in kept)
        lines.flush()
        os.fsync(lines.fileno())
    os.link(file, aside)
    os.replace(new, file)
    sync_names(folder)


def read(file: Path) -> Kept:
    """All lines; none where there is no file. Raises StoreError where there is one that cannot be read."""
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
