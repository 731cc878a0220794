"""Parquet and Arrow files, read in a program of its own: a few bytes may mean gigabytes, or end the program
that reads.

    python -m diagevo.ingest.formats.table_rows

For each `[file, columns]` on stdin, lines of JSON on stdout: all columns and which of them are numbers, then
each row with the numbers and the columns asked for, and null; or what is wrong, in brackets. The program may
take so much more memory than it had when it began, and a file so many bytes of text for each of its own.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

MEMORY = 768 * 2**20
"""Bytes of address space that the reader may take."""
ROWS = 64
"""Rows in memory at once."""
LEAST, FACTOR = 16 * 2**20, 100
"""A file's text may have so many bytes, and so many for each byte of the file."""
WHOLE = 4
"""An Arrow stream is read whole, and may take so many bytes more for each of its own."""


def answer(name: str, asked: Sequence[str]) -> Iterator[Any]:
    """The lines for a file."""
    import polars

    with open(name, "rb") as file:
        size = file.seek(0, 2)
    if name.endswith(".arrow"):
        _limit(MEMORY + WHOLE * size)
        frame = polars.read_ipc_stream(name).lazy()
    else:
        _limit(MEMORY)
        frame = polars.scan_parquet(name)
    schema = frame.collect_schema()
    numbers = [column for column, kind in schema.items() if kind.is_numeric()]
    yield {"columns": list(schema), "numbers": numbers}
    wanted = [column for column in schema if column in asked or column in numbers]
    total = 0
    batches = frame.select(wanted).collect_batches(chunk_size=ROWS, maintain_order=True) if wanted else ()
    rows = (row for batch in batches for row in batch.iter_rows(named=True, buffer_size=1))
    for number, row in enumerate(rows, start=1):
        try:
            text = json.dumps(row, default=_text)
        except (TypeError, ValueError, RecursionError) as error:
            yield [f"row {number}: {error}"]
            return
        total += len(text)
        if total > LEAST + FACTOR * size:
            yield [f"its {size:,} bytes hold more than {total:,} bytes of text"]
            return
        yield text
    yield None


def _text(value: Any) -> str:
    if isinstance(value, date | time | timedelta | Decimal):
        return str(value)
    raise TypeError(f"a {type(value).__name__} where a text or number is expected")


_BEGAN: list[int] = []
"""Bytes of address space that the program had when it began."""


def _limit(more: int) -> None:
    """Not on every system; where there is none, a reader that ends is still only a reader that ended."""
    try:
        import resource
        from pathlib import Path

        if not _BEGAN:
            _BEGAN.append(int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize())
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (_BEGAN[0] + more, most))
    except (ImportError, OSError, ValueError):
        pass


def main() -> None:
    import polars

    polars.DataFrame({"warm": [[{"a": "b"}]]}).lazy().collect()  # its threads are there before the limit
    _limit(MEMORY)
    for line in sys.stdin:
        try:
            for said in answer(*json.loads(line)):
                sys.stdout.write((said if isinstance(said, str) else json.dumps(said)) + "\n")
        except MemoryError:
            said = f"reading it takes more than {MEMORY >> 20} MiB; write it as smaller files"
            sys.stdout.write(json.dumps([said]) + "\n")
        except Exception as error:  # polars raises of many kinds, and the parent waits for an answer
            sys.stdout.write(json.dumps([str(error).strip() or type(error).__name__]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
