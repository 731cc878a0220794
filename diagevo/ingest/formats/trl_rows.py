"""Parquet files, read in a program of its own: a few bytes may mean gigabytes, or end the program that reads.

    python -m diagevo.ingest.formats.trl_rows

For each name of a file on stdin, lines of JSON on stdout: the columns and which of them are numbers, each
row, and null; or what is wrong. The program may take so much more memory than it had when it began, and a
file so many bytes of text for each of its own.
"""

import json
import sys
from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

MEMORY = 768 * 2**20
"""Bytes of address space that the reader may take."""
ROWS = 64
"""Rows in memory at once."""
LEAST, FACTOR = 16 * 2**20, 100
"""A file's text may have so many bytes, and so many for each byte of the file."""
TEXTS = ("prompt", "completion", "answer", "solution")


def answer(name: str) -> Iterator[Any]:
    """The lines for a file."""
    import polars

    with open(name, "rb") as file:
        size = file.seek(0, 2)
    frame = polars.scan_parquet(name)
    schema = frame.collect_schema()
    numbers = [column for column, kind in schema.items() if kind.is_numeric()]
    yield {"columns": list(schema), "numbers": numbers}
    wanted = [column for column in schema if column in TEXTS or column in numbers]
    total = 0
    batches = frame.select(wanted).collect_batches(chunk_size=ROWS, maintain_order=True) if wanted else ()
    rows = (row for batch in batches for row in batch.iter_rows(named=True, buffer_size=1))
    for number, row in enumerate(rows, start=1):
        try:
            text = json.dumps(row, default=_text)
        except (TypeError, ValueError, RecursionError) as error:
            yield {"error": f"row {number}: {error}"}
            return
        total += len(text)
        if total > LEAST + FACTOR * size:
            yield {"error": f"its {size:,} bytes hold more than {total:,} bytes of text"}
            return
        yield text
    yield None


def _text(value: Any) -> str:
    if isinstance(value, date | time | timedelta | Decimal):
        return str(value)
    raise TypeError(f"a {type(value).__name__} where a text or number is expected")


def _limit() -> None:
    """Not on every system; where there is none, a reader that ends is still only a reader that ended."""
    try:
        import resource
        from pathlib import Path

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    except (ImportError, OSError, ValueError):
        pass


def main() -> None:
    import polars

    polars.DataFrame({"warm": [[{"a": "b"}]]}).lazy().collect()  # its threads are there before the limit
    _limit()
    for line in sys.stdin:
        try:
            for said in answer(json.loads(line)):
                sys.stdout.write((said if isinstance(said, str) else json.dumps(said)) + "\n")
        except MemoryError:
            sys.stdout.write(json.dumps({"error": f"reading it takes more than {MEMORY >> 20} MiB"}) + "\n")
        except Exception as error:  # polars raises of many kinds, and the parent waits for an answer
            sys.stdout.write(json.dumps({"error": str(error).strip() or type(error).__name__}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
