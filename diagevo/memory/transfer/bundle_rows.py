"""What a bundle's rows hold and may weigh, and how its files are opened."""

import errno
import hashlib
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from diagevo.errors import StoreError

LONGEST = 64 * 2**20
"""Bytes of a row: more is neither written nor read."""

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Long = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class Row(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Base of the rows: exactly these columns, in these types, with numbers that a database takes."""


class EventRow(Row, frozen=True, gc=False):
    position: Long
    event_id: str
    run_id: str
    sequence: Long
    round: Count
    type: str
    schema_version: Count
    cause_id: str | None
    payload: str
    causation_id: str | None
    recorded_at: str
    previous_hash: Sha256
    hash: Sha256


class TextRow(Row, frozen=True, gc=False):
    digest: Sha256
    content: bytes
    """UTF-8; in JSON lines base64 of it."""


class ReplyRow(Row, frozen=True, gc=False):
    model: str
    request: Sha256
    text: Sha256
    input_tokens: Count
    output_tokens: Count


class VectorRow(Row, frozen=True, gc=False):
    model: str
    text_hash: Sha256
    vector: bytes


ROWS: dict[str, type[Row]] = {
    "events": EventRow,
    "texts": TextRow,
    "replies": ReplyRow,
    "vectors": VectorRow,
}
"""What stands in each file."""


def weight(row: dict[str, Any]) -> int:
    """Bytes of the texts of a row, as `LONGEST` counts them; characters count as one."""
    return sum(len(value) for value in row.values() if isinstance(value, str | bytes))


def refuse_long(size: int, name: str, row: int) -> None:
    if size > LONGEST:
        raise StoreError(
            f"row {row} of {name} has {size:,} bytes; a bundle takes {LONGEST:,}",
            hint="keep the whole database instead: diagevo db backup FILE",
        )


@contextmanager
def open_regular(path: Path) -> Generator[BufferedReader]:
    """A file for reading. Raises OSError for a link, a pipe, a device or a folder: nothing waits at a pipe,
    and nothing outside the folder is read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    with open(descriptor, "rb") as file:
        yield file


def digest_of_file(path: Path) -> str:
    """SHA-256 of a regular file, in hex."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
