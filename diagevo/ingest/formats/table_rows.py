"""Reads Parquet, Arrow and torch files in a separate process: a few bytes may expand to gigabytes, or crash
the reader.

    python -m diagevo.ingest.formats.table_rows

For each `[file, columns]` on stdin, lines of JSON on stdout: all columns and which of them are numbers, then
each row with the numbers and the columns asked for, and null; or an error, in brackets. The process may use
only a limited amount of memory beyond its start, and a file only a limited number of text bytes per byte.
"""

import json
import pickle
import sys
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

MEMORY = 768 * 2**20
"""Maximum bytes of address space that the reader may add."""
COLUMNS = 2_000
"""Maximum columns of a file: the time to read a row grows with them. A trainer writes dozens."""
ROWS = 64
"""Rows in memory at once."""
LEAST, FACTOR = 16 * 2**20, 100
"""Maximum bytes of a file's text, and per byte of the file."""
WHOLE = {".arrow": 4, ".pt": 16}
"""These are read whole, and may use this many more bytes per byte."""


def answer(name: str, requested: Sequence[str]) -> Iterator[Any]:
    """The lines for a file."""
    with open(name, "rb") as file:
        size = file.seek(0, 2)
    if not name.endswith(".pt"):
        _polars()
    _limit(MEMORY + WHOLE.get(Path(name).suffix, 0) * size)
    columns, numbers, rows = (
        _pickled(name, size, requested) if name.endswith(".pt") else _table(name, requested)
    )
    yield {"columns": columns, "numbers": numbers}
    total = 0
    for number, row in enumerate(rows, start=1):
        try:
            text = json.dumps(row, default=_text, ensure_ascii=False).encode()  # half a pair is no text
        except (TypeError, ValueError, RecursionError) as error:
            yield [f"row {number}: {error}"]
            return
        total += len(text)
        if total > LEAST + FACTOR * size:
            yield [f"its {size:,} bytes hold more than {total:,} bytes of text"]
            return
        yield text
    yield None


@cache
def _polars() -> None:
    """Its threads start before the limit is set."""
    import polars

    polars.DataFrame({"warm": [[{"a": "b"}]]}).lazy().collect()


_Rows = tuple[list[str], list[str], Iterator[dict[str, Any]]]
"""All columns, those that are numbers, and the rows."""


def _table(name: str, requested: Sequence[str]) -> _Rows:
    import polars

    if not name.endswith(".arrow"):
        frame = polars.scan_parquet(name)
    elif _begins(name, b"ARROW1"):  # Feather, and what polars and pandas write
        frame = polars.read_ipc(name).lazy()
    else:  # as the Hugging Face hub stores data sets
        frame = polars.read_ipc_stream(name).lazy()
    # A float of 32 bits is the decimal that it was written as: .9 reaches --pass-at 0.9.
    frame = frame.with_columns(polars.col(polars.Float32).cast(polars.String).cast(polars.Float64))
    schema = frame.collect_schema()
    if len(schema) > COLUMNS:
        raise ValueError(f"it has {len(schema):,} columns, of which at most {COLUMNS:,} are read")
    numbers = [column for column, kind in schema.items() if kind.is_numeric()]
    wanted = [column for column in schema if column in requested or column in numbers]
    batches = frame.select(wanted).collect_batches(chunk_size=ROWS, maintain_order=True) if wanted else ()
    rows = (row for batch in batches for row in batch.iter_rows(named=True, buffer_size=1))
    return list(schema), numbers, rows


def _begins(name: str, mark: bytes) -> bool:
    with Path(name).open("rb") as stream:
        return stream.read(len(mark)) == mark


def _pickled(name: str, size: int, requested: Sequence[str]) -> _Rows:
    """The dictionaries in `samples` of a `torch.save` file, without torch, tensors and classes."""
    with zipfile.ZipFile(name) as packed:
        [entry] = [each for each in packed.infolist() if each.filename.rpartition("/")[2] == "data.pkl"]
        if entry.file_size > LEAST + FACTOR * size:
            raise ValueError(f"its {size:,} bytes hold a pickle of {entry.file_size:,}")
        saved = Unpickler(BytesIO(packed.read(entry))).load()
    samples = saved.get("samples") if isinstance(saved, dict) else None
    if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise ValueError("it has no list of samples")
    columns = [str(key) for key in samples[0]] if samples else []
    return columns, [], ({key: sample[key] for key in requested if key in sample} for sample in samples)


class Inert:
    """Replaces every object that a pickle requests: it does nothing, whatever is done to it."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __setstate__(self, _: Any) -> None: ...

    def __setitem__(self, _: Any, __: Any) -> None: ...

    def append(self, _: Any) -> None: ...

    def __call__(self, *_: Any) -> "Inert":
        return self


class Unpickler(pickle.Unpickler):
    """Reads plain values. A pickle may name any function and have it called: here each is `Inert`."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        return type(module_name.partition(".")[0], (Inert,), {})

    def persistent_load(self, pid: Any) -> Any:
        return Inert()  # a tensor's numbers


def _text(value: Any) -> str:
    if isinstance(value, date | time | timedelta | Decimal):
        return str(value)
    what = f"{type(value).__name__} object" if isinstance(value, Inert) else type(value).__name__
    raise TypeError(f"a {what} where a text or number is expected")


_BEGAN: list[int] = []
"""Bytes of address space at the start."""


def _limit(more: int) -> None:
    """Not on every system; where there is none, a reader that ends is still only a reader that ended."""
    try:
        import resource

        if not _BEGAN:
            _BEGAN.append(int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize())
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_BEGAN[0] + more, most))
    except (ImportError, OSError, ValueError):
        pass


def main() -> None:
    for line in sys.stdin:
        try:
            for reply in answer(*json.loads(line)):
                _write(reply)
        except MemoryError:
            _write([f"reading it takes more than {MEMORY >> 20} MiB; write it as smaller files"])
        except Exception as error:  # polars raises many types, and the parent waits for an answer
            _write([str(error).strip() or type(error).__name__])
        sys.stdout.flush()


def _write(line: Any) -> None:
    sys.stdout.buffer.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")


if __name__ == "__main__":
    main()
