"""Rows of a bundle in files: JSON lines, or Parquet through pyarrow. Both stream."""

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol, cast

import msgspec

from diagevo.errors import StoreError

Form = Literal["jsonl", "parquet"]
FORMATS = ("jsonl", "parquet")
GROUP = 5000
"""Rows of a Parquet row group, and with them the most that is in memory."""

COLUMNS: dict[str, dict[str, str]] = {
    "events": {
        "position": "int64",
        "event_id": "string",
        "run_id": "string",
        "sequence": "int64",
        "round": "int64",
        "type": "string",
        "schema_version": "int64",
        "cause_id": "string",
        "payload": "string",
        "causation_id": "string",
        "recorded_at": "string",
        "previous_hash": "string",
        "hash": "string",
    },
    "texts": {"digest": "string", "content": "binary"},
    "replies": {
        "model": "string",
        "request": "string",
        "text": "string",
        "input_tokens": "int64",
        "output_tokens": "int64",
    },
    "vectors": {"model": "string", "text_hash": "string", "vector": "binary"},
}
"""Columns of each file. In JSON lines bytes are base64; a text's bytes are its UTF-8."""


class Writer(Protocol):
    """Rows go in one by one; `name` is the file's."""

    name: str
    rows: int

    def add(self, row: dict[str, Any]) -> None: ...


@contextmanager
def writer(folder: Path, kind: str, form: Form) -> Iterator[Writer]:
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


class _JsonLines:
    def __init__(self, kind: str, file: IO[bytes]) -> None:
        self.name, self.rows, self._file = f"{kind}.jsonl", 0, file
        self._encode = msgspec.json.Encoder().encode  # bytes become base64

    def add(self, row: dict[str, Any]) -> None:
        self._file.write(self._encode(row) + b"\n")
        self.rows += 1


class _Parquet:
    def __init__(self, folder: Path, kind: str) -> None:
        import pyarrow
        import pyarrow.parquet

        self.name, self.rows = f"{kind}.parquet", 0
        types = {"int64": pyarrow.int64(), "string": pyarrow.string(), "binary": pyarrow.binary()}
        self._schema = pyarrow.schema([(name, types[type_]) for name, type_ in COLUMNS[kind].items()])
        self._table = pyarrow.Table
        self._file = pyarrow.parquet.ParquetWriter(folder / self.name, self._schema, compression="zstd")
        self._group: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        self._group.append(row)
        self.rows += 1
        if len(self._group) == GROUP:
            self._flush()

    def _flush(self) -> None:
        self._file.write_table(self._table.from_pylist(self._group, schema=self._schema))
        self._group.clear()

    def close(self) -> None:
        if self._group:
            self._flush()
        self._file.close()


def read_rows(folder: Path, kind: str, form: Form) -> Iterator[dict[str, Any]]:
    """The rows of a file, streamed. Raises StoreError where it cannot be read."""
    path = folder / f"{kind}.{form}"
    try:
        yield from _lines(path, kind) if form == "jsonl" else _groups(path)
    except (OSError, ValueError, KeyError) as error:  # as are pyarrow's and msgspec's
        raise StoreError(
            f"{path} cannot be read: {error}", hint="write the bundle again: diagevo memory export FOLDER"
        ) from error


def _lines(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    binary, decode = _binary(kind), msgspec.json.Decoder(dict[str, Any]).decode
    with path.open("rb") as file:
        for line in file:
            row = decode(line)
            for column in binary:
                row[column] = base64.b64decode(row[column])
            yield row


def _groups(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet

    # Read ahead, and by several threads, Arrow would hold the whole file.
    with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches(batch_size=GROUP, use_threads=False):
            yield from cast("list[dict[str, Any]]", batch.to_pylist())


def _binary(kind: str) -> tuple[str, ...]:
    return tuple(name for name, type_ in COLUMNS[kind].items() if type_ == "binary")


def digest_of_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
