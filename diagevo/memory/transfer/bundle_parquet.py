"""Rows of a bundle as Parquet, through pyarrow.

A file of a few kilobytes can unpack to any size, and no length that it names about itself need be true. So
Parquet is unpacked by a process of its own, whose memory has a bound (`python -m` of this module), and its
rows come here one by one.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from diagevo.memory.transfer.bundle_rows import (
    LONGEST,
    ROWS,
    Count,
    Long,
    Row,
    open_regular,
    refuse_long,
    weight,
)

GROUP = 5000
"""Rows of a row group, and with them the most that is in memory while they are written."""
BATCH = 500
"""Rows that are unpacked at a time."""
MEMORY = 2**30
"""Bytes of address space of the process that unpacks. Its libraries take a third; a row group as it is
written has `LONGEST`, which is there a few times over while it is unpacked."""


def _arrow() -> tuple[Any, Any]:
    """pyarrow and its Parquet part, which have no types."""
    return import_module("pyarrow"), import_module("pyarrow.parquet")


def _schema(kind: str) -> Any:
    pyarrow, _ = _arrow()

    def type_of(annotation: Any) -> Any:
        if annotation is bytes:
            return pyarrow.binary()
        return pyarrow.int64() if annotation in (Count, Long) else pyarrow.string()

    return pyarrow.schema([(field.name, type_of(field.type)) for field in msgspec.structs.fields(ROWS[kind])])


class ParquetWriter:
    def __init__(self, folder: Path, kind: str) -> None:
        pyarrow, parquet = _arrow()
        self.name, self.rows = f"{kind}.parquet", 0
        self._schema = _schema(kind)
        self._table = pyarrow.Table
        self._file = parquet.ParquetWriter(folder / self.name, self._schema, compression="zstd")
        self._group: list[dict[str, Any]] = []
        self._bytes = 0

    def add(self, row: dict[str, Any]) -> None:
        size = weight(row)
        self.rows += 1
        refuse_long(size, self.name, self.rows)
        if len(self._group) == GROUP or self._bytes + size > LONGEST:
            self._flush()
        self._group.append(row)
        self._bytes += size

    def _flush(self) -> None:
        self._file.write_table(self._table.from_pylist(self._group, schema=self._schema))
        self._group.clear()
        self._bytes = 0

    def close(self) -> None:
        if self._group:
            self._flush()
        self._file.close()


class ParquetReader:
    """The files of a bundle, unpacked by a process that ends with this object."""

    def __init__(self, folder: Path) -> None:
        # -P: the current folder may be the bundle, and nothing of it is to be run.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def rows(self, kind: str, expected: int) -> Iterator[Row]:
        """The rows of a file. Raises ValueError where it cannot be unpacked or a row has another type. Each
        file is read to its end before the next is asked for."""
        sent = cast(IO[bytes], self._process.stdin)
        with suppress(BrokenPipeError):  # it has died: said below
            sent.write(f"{kind} {expected}\n".encode())
            sent.flush()
        decode = msgspec.msgpack.Decoder[Any](ROWS[kind] | str | None).decode
        while (said := decode(self._take(int.from_bytes(self._take(4))))) is not None:
            if isinstance(said, str):
                raise ValueError(said)
            yield said

    def _take(self, size: int) -> bytes:
        taken = cast(IO[bytes], self._process.stdout).read(size)
        if len(taken) < size:
            raise ValueError(f"the process that unpacks it ended with status {self._process.wait()}")
        return taken

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def _unpacked(file: IO[bytes], kind: str, expected: int) -> Iterator[dict[str, Any]]:
    _, parquet = _arrow()
    schema = _schema(kind)
    # Read ahead, and by several threads, Arrow would hold the whole file.
    opened = parquet.ParquetFile(file, pre_buffer=False, buffer_size=2**20)
    if opened.metadata.num_rows != expected:
        raise ValueError(f"it has {opened.metadata.num_rows} rows; the manifest names {expected}")
    if [(f.name, f.type) for f in opened.schema_arrow] != [(f.name, f.type) for f in schema]:
        raise ValueError(f"its columns are not those of {kind}: {', '.join(schema.names)}")
    for group in range(opened.metadata.num_row_groups):
        for batch in opened.iter_batches(BATCH, row_groups=[group], use_threads=False):
            for row in batch.to_pylist():
                if (size := weight(row)) > LONGEST:
                    raise ValueError(f"a row has {size:,} bytes; it may have {LONGEST:,}")
                yield row


def _serve(folder: Path) -> None:
    """Answer each line of stdin, a kind and its number of rows: its rows on stdout, then null, or a text that
    says why not; each with its length before it."""
    encode, out = msgspec.msgpack.Encoder().encode, sys.stdout.buffer
    pyarrow, _ = _arrow()

    def send(said: dict[str, Any] | str | None) -> None:
        content = encode(said)
        out.write(len(content).to_bytes(4))
        out.write(content)

    for line in sys.stdin.buffer:
        kind, expected = line.decode().split()
        try:
            with open_regular(folder / f"{kind}.parquet") as file:
                for row in _unpacked(file, kind, int(expected)):
                    send(row)
            send(None)
        except MemoryError:
            send(f"it takes more than {MEMORY:,} bytes of memory")
        except (OSError, ValueError, pyarrow.ArrowException) as error:
            send(str(error) or type(error).__name__)
        out.flush()


if __name__ == "__main__":
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others take their space ahead of need
    with suppress(ValueError):  # macOS knows no such bound; a lower one may be in force already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _serve(Path(sys.argv[1]))
