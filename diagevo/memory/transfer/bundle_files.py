"""Rows of a bundle in files: JSON lines, or Parquet. Both stream.

What is read was written by somebody else: only regular files are opened, every row has the types that were
written, and no row or line takes more memory than its bound.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol

import msgspec

from diagevo.errors import StoreError
from diagevo.memory.transfer.bundle_parquet import ParquetReader, ParquetWriter
from diagevo.memory.transfer.bundle_rows import LONGEST, ROWS, Row, open_regular, refuse_long

Form = Literal["jsonl", "parquet"]
FORMATS = ("jsonl", "parquet")
EXPORT_AGAIN = "take a whole copy of the bundle, or write it again: diagevo memory export FOLDER"


class Writer(Protocol):
    """Rows go in one by one; `name` is the file's. Raises StoreError for a row that nobody could read."""

    name: str
    rows: int

    def add(self, row: dict[str, Any]) -> None: ...


@contextmanager
def writer(folder: Path, kind: str, form: Form) -> Generator[Writer]:
    """Open the file of `kind` for writing."""
    if form == "jsonl":
        with (folder / f"{kind}.jsonl").open("wb") as file:
            yield _JsonLines(kind, file)
        return
    out = ParquetWriter(folder, kind)
    try:
        yield out
    finally:
        out.close()


class _JsonLines:
    def __init__(self, kind: str, file: IO[bytes]) -> None:
        self.name, self.rows, self._file = f"{kind}.jsonl", 0, file
        self._encode = msgspec.json.Encoder().encode  # bytes become base64

    def add(self, row: dict[str, Any]) -> None:
        line = self._encode(row) + b"\n"
        self.rows += 1
        refuse_long(len(line), self.name, self.rows)
        self._file.write(line)


class Reader:
    """The files of a bundle, one after the other."""

    def __init__(self, folder: Path, form: Form) -> None:
        self._folder, self._form = folder, form
        self._parquet = ParquetReader(folder) if form == "parquet" else None

    def rows(self, kind: str, expected: int) -> Iterator[Any]:
        """The rows of a file, streamed, each of the type in `ROWS`. Raises StoreError where it cannot be
        read, a row has another type, or there are not as many as `expected`."""
        path = self._folder / f"{kind}.{self._form}"
        rows = self._parquet.rows(kind, expected) if self._parquet else _lines(path, kind)
        number = 0
        try:
            for row in rows:
                number += 1
                yield row
        except (OSError, ValueError, MemoryError) as error:  # as are msgspec's
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StoreError(
                f"{path}, after row {number}, cannot be read: {said}", hint=EXPORT_AGAIN
            ) from error
        if number != expected:
            raise StoreError(f"{path} has {number} rows; the manifest names {expected}", hint=EXPORT_AGAIN)

    def close(self) -> None:
        if self._parquet:
            self._parquet.close()


def _lines(path: Path, kind: str) -> Iterator[Row]:
    decode = msgspec.json.Decoder(ROWS[kind]).decode
    with open_regular(path) as file:
        while line := file.readline(LONGEST + 1):
            if len(line) > LONGEST:
                raise ValueError(f"a line has more than {LONGEST:,} bytes")
            yield decode(line)
