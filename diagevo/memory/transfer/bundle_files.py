"""Rows of a bundle in files: JSON lines, or Parquet through pyarrow. Both stream.

What is read was written by somebody else: only regular files are opened, every row has the types that were
written, and no row, group or line takes more memory than its bound.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Protocol

import msgspec
import numpy as np
from msgspec import Meta

from diagevo.errors import StoreError

Form = Literal["jsonl", "parquet"]
FORMATS = ("jsonl", "parquet")
GROUP = 5000
"""Rows of a Parquet row group, and with them the most that is in memory."""
LONGEST = 64 * 2**20
"""Bytes of a row: more is neither written nor read."""
HEAVIEST = 2**30
"""Bytes that a row group may say it unpacks to."""
READ_ROWS = 500
"""Rows of a Parquet file that are unpacked at a time."""
EXPORT_AGAIN = "take a whole copy of the bundle, or write it again: diagevo memory export FOLDER"

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Long = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


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
    previous_hash: Digest
    hash: Digest


class TextRow(Row, frozen=True, gc=False):
    digest: Digest
    content: bytes
    """UTF-8; in JSON lines base64 of it."""


class ReplyRow(Row, frozen=True, gc=False):
    model: str
    request: Digest
    text: Digest
    input_tokens: Count
    output_tokens: Count


class VectorRow(Row, frozen=True, gc=False):
    model: str
    text_hash: Digest
    vector: bytes


ROWS: dict[str, type[Row]] = {
    "events": EventRow,
    "texts": TextRow,
    "replies": ReplyRow,
    "vectors": VectorRow,
}
"""What stands in each file."""


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
    out = _Parquet(folder, kind)
    try:
        yield out
    finally:
        out.close()


def _refuse_long(size: int, name: str, row: int) -> None:
    if size > LONGEST:
        raise StoreError(
            f"row {row} of {name} has {size:,} bytes; a bundle takes {LONGEST:,}",
            hint="keep the whole database instead: diagevo db backup FILE",
        )


class _JsonLines:
    def __init__(self, kind: str, file: IO[bytes]) -> None:
        self.name, self.rows, self._file = f"{kind}.jsonl", 0, file
        self._encode = msgspec.json.Encoder().encode  # bytes become base64

    def add(self, row: dict[str, Any]) -> None:
        line = self._encode(row) + b"\n"
        self.rows += 1
        _refuse_long(len(line), self.name, self.rows)
        self._file.write(line)


def _arrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet part, which have no types."""
    return import_module("pyarrow"), import_module("pyarrow.parquet")


class _Parquet:
    def __init__(self, folder: Path, kind: str) -> None:
        pyarrow, parquet = _arrow()
        self.name, self.rows = f"{kind}.parquet", 0
        self._schema = _schema(kind)
        self._table = pyarrow.Table
        self._file = parquet.ParquetWriter(folder / self.name, self._schema, compression="zstd")
        self._group: list[dict[str, Any]] = []
        self._bytes = 0

    def add(self, row: dict[str, Any]) -> None:
        size = sum(len(value) for value in row.values() if isinstance(value, str | bytes))
        self._group.append(row)
        self._bytes += size
        self.rows += 1
        _refuse_long(size, self.name, self.rows)
        if len(self._group) == GROUP or self._bytes > LONGEST:
            self._flush()

    def _flush(self) -> None:
        self._file.write_table(self._table.from_pylist(self._group, schema=self._schema))
        self._group.clear()
        self._bytes = 0

    def close(self) -> None:
        if self._group:
            self._flush()
        self._file.close()


def _schema(kind: str) -> Any:
    pyarrow, _ = _arrow()

    def type_of(annotation: Any) -> Any:
        if annotation is bytes:
            return pyarrow.binary()
        return pyarrow.int64() if annotation in (Count, Long) else pyarrow.string()

    return pyarrow.schema([(field.name, type_of(field.type)) for field in msgspec.structs.fields(ROWS[kind])])


def read_rows(folder: Path, kind: str, form: Form, expected: int) -> Iterator[Any]:
    """The rows of a file, streamed, each of the type in `ROWS`. Raises StoreError where it cannot be read, a
    row has another type, or there are not as many as `expected`."""
    path = folder / f"{kind}.{form}"
    number = 0
    try:
        with open_regular(path) as file:
            for row in _lines(file, kind) if form == "jsonl" else _groups(file, kind, expected):
                number += 1
                yield row
    except (OSError, ValueError, KeyError, MemoryError) as error:  # as are pyarrow's and msgspec's
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StoreError(f"{path}, after row {number}, cannot be read: {said}", hint=EXPORT_AGAIN) from error
    if number != expected:
        raise StoreError(f"{path} has {number} rows; the manifest names {expected}", hint=EXPORT_AGAIN)


def _lines(file: IO[bytes], kind: str) -> Iterator[Row]:
    decode = msgspec.json.Decoder(ROWS[kind]).decode
    while line := file.readline(LONGEST + 1):
        if len(line) > LONGEST:
            raise ValueError(f"a line has more than {LONGEST:,} bytes")
        yield decode(line)


def _groups(file: IO[bytes], kind: str, expected: int) -> Iterator[Row]:
    pyarrow, parquet = _arrow()
    schema, row_type = _schema(kind), ROWS[kind]
    texts = [field.name for field in schema if field.type != pyarrow.int64()]
    with parquet.ParquetFile(file, pre_buffer=False) as opened:
        about = opened.metadata
        if about.num_rows != expected:
            raise ValueError(f"it has {about.num_rows} rows; the manifest names {expected}")
        if [(f.name, f.type) for f in opened.schema_arrow] != [(f.name, f.type) for f in schema]:
            raise ValueError(f"its columns are not those of {kind}: {', '.join(schema.names)}")
        for number in range(about.num_row_groups):
            group = about.row_group(number)
            size = sum(group.column(c).total_uncompressed_size for c in range(group.num_columns))
            if size > HEAVIEST:
                raise ValueError(f"a row group unpacks to {size:,} bytes; it may have {HEAVIEST:,}")
        # Texts stay what the file has once and names often: unpacked, a few bytes could fill the memory.
        # Read ahead, and by several threads, Arrow would hold the whole file.
        opened = parquet.ParquetFile(file, metadata=about, read_dictionary=texts, pre_buffer=False)
        for batch in opened.iter_batches(batch_size=READ_ROWS, use_threads=False):
            for part in _portions(batch):
                for row in part.to_pylist():
                    yield msgspec.convert(row, row_type)


def _portions(batch: Any) -> Iterator[Any]:
    """Slices of a batch that stay below the bound once each row has its texts. Raises ValueError for a row
    that is above it by itself."""
    pyarrow, _ = _arrow()
    compute: Any = import_module("pyarrow.compute")
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in batch.columns:
        if isinstance(column, pyarrow.DictionaryArray) and len(column.dictionary):
            lengths = compute.binary_length(column.dictionary).take(column.indices)
            sizes += lengths.fill_null(0).to_numpy(zero_copy_only=False)
    start = held = 0
    for place, size in enumerate(sizes.tolist()):
        if size > LONGEST:
            raise ValueError(f"a row has {size:,} bytes; it may have {LONGEST:,}")
        if held + size > LONGEST:
            yield batch.slice(start, place - start)
            start, held = place, 0
        held += size
    yield batch.slice(start)


@contextmanager
def open_regular(path: Path) -> Generator[BufferedReader]:
    """A file for reading. Raises OSError for a link, a pipe, a device or a folder: nothing waits at a pipe,
    and nothing outside the folder is read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    with open(descriptor, "rb") as file:
        yield file


def digest_of_file(path: Path) -> str:
    """SHA-256 of a regular file, in hex."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
