"""Bundles that somebody changed with care: rows written anew, and digests, counts and hashes made to fit."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from diagevo.memory.events.records import GENESIS, Recorded
from diagevo.memory.transfer.bundle_parquet import ParquetReader
from diagevo.memory.transfer.bundle_rows import digest_of_file

Rows = list[dict[str, Any]]


def rows_of(folder: Path, kind: str) -> Rows:
    """The rows of a JSON-lines bundle."""
    return [json.loads(line) for line in (folder / f"{kind}.jsonl").read_text().splitlines()]


def sign(folder: Path, name: str, rows: int) -> None:
    """Make the manifest agree with a changed file."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"rows": rows, "sha256": digest_of_file(folder / name)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def write_rows(folder: Path, kind: str, rows: Rows) -> None:
    path = folder / f"{kind}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sign(folder, path.name, len(rows))


def write_parquet(folder: Path, kind: str, rows: Rows, **how: Any) -> None:
    """Rows of whatever type: Arrow finds out which."""
    path = folder / f"{kind}.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, **how)
    if (folder / "manifest.json").exists():
        sign(folder, path.name, len(rows))


def forge_events(folder: Path, change: Callable[[Rows], None]) -> None:
    """Change events and hash all of them again: a chain that holds, of a history that nobody played."""
    rows = rows_of(folder, "events")
    change(rows)
    previous = GENESIS
    for row in rows:
        row["previous_hash"] = previous
        row["hash"] = previous = Recorded(**row).computed_hash
    write_rows(folder, "events", rows)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {"events": len(rows), "head": previous}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def packed(content: bytes) -> str:
    return base64.b64encode(content).decode()


def most_held(reader: ParquetReader) -> int:
    """The most bytes of memory that the process that unpacks has had so far."""
    status = Path(f"/proc/{reader._process.pid}/status").read_text()
    [peak] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return 1024 * int(peak)
