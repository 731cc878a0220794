"""The chain's head outside the database: a line a commit, in the run's folder.

Whoever rewrites the whole log with fresh hashes must also reach this file, on another disk if the user likes.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from diagevo.errors import StoreError

NAME = "chain-heads.jsonl"


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Where the chain stood right after the commit of a round."""

    round: int
    sequence: int
    position: int
    hash: str


def append(folder: Path, head: ChainHead) -> None:
    """Add a line, and have it on the disk before returning. What a crash cut short stays a line of its
    own."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / NAME).open("a+b") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(asdict(head)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"the chain head {folder / NAME} cannot be written: {error.strerror}") from error


def read(folder: Path) -> list[ChainHead]:
    """All lines that are whole; empty where there is no file. (A crash may cut the last line short.)"""
    path = folder / NAME
    if not path.exists():
        return []
    heads = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            heads.append(ChainHead(**json.loads(line)))
        except (json.JSONDecodeError, TypeError):
            continue
    return heads
