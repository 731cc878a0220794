"""The derived vector index for very many causes: LanceDB, exact (flat) search, rebuilt when in doubt.

Written once per commit. A watermark beside the table says which causes of which embedding model it holds, and
the digest of its files; if the folder is missing, damaged, behind or another model's, it is rebuilt.
Deleting it costs only time.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from diagevo.errors import StoreError, extra
from diagevo.memory.events import Cause

TABLE = "causes"
CHUNK = 10_000
"""Causes at a time: 41 MB of 1,024 numbers."""
Load = Callable[[Sequence[Cause]], np.ndarray]
"""(n, d) vectors of causes, from SQL."""


def _checksum(causes: Sequence[Cause]) -> str:
    digest = hashlib.sha256()
    for cause in causes:
        digest.update(f"{cause.cause_id} {len(cause.description)}:{cause.description}".encode())
    return digest.hexdigest()


def installed() -> bool:
    return find_spec("lancedb") is not None


def lancedb(needed_by: str = "the vector index of a memory of very many causes") -> Any:
    """The module. Raises MissingDependencyError without the extra."""
    with extra("index", needed_by):
        return import_module("lancedb")


DAMAGE = (OSError, ValueError, KeyError, TypeError, RuntimeError)
"""The errors of LanceDB and JSON for missing or damaged files."""


class VectorIndex:
    """The first `size` causes of a run, in a folder. Every failure of the folder ends in a rebuild."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder = folder
        self.model = model
        self.size = 0
        self._table = None

    @property
    def _watermark(self) -> Path:
        return self.folder / "watermark.json"

    def sync(self, causes: Sequence[Cause], load: Load) -> None:
        """Hold exactly `causes`: open what exists, add what is new, or rebuild it. Raises StoreError if
        the folder cannot be written."""
        if self._table is not None and self.size == len(causes):
            return
        try:
            if not self._reuse(causes):
                self.clear()
            if self._table is None or self.size < len(causes):
                self._extend(causes, load)
        except DAMAGE as error:
            raise StoreError(
                f"the vector index {self.folder} cannot be written: {error}",
                hint="check that the folder is writable and has free space; deleting it loses nothing",
            ) from error

    def clear(self) -> None:
        """Remove the folder and everything in it."""
        self._table, self.size = None, 0
        if self.folder.is_dir():
            shutil.rmtree(self.folder)
        else:
            self.folder.unlink(missing_ok=True)

    def _reuse(self, causes: Sequence[Cause]) -> bool:
        """Whether the folder holds a prefix of `causes`, every byte as it was written."""
        connect = lancedb().connect
        try:
            mark = json.loads(self._watermark.read_text())
            size = int(mark["causes"])
            if mark["model"] != self.model or mark["checksum"] != _checksum(causes[:size]) or size == 0:
                return False
            # More than the log has: from a fork, or from a database restored to an earlier round.
            if size > len(causes) or mark["files"] != self._digest():
                return False
            table = connect(self.folder).open_table(TABLE)
        except DAMAGE:
            return False  # SQL has it all
        self._table, self.size = table, size
        return True

    def _digest(self) -> str:
        """Of every file below the table's folder, by name: Lance itself does not see a changed byte."""
        digest = hashlib.sha256()
        for path in sorted(path for path in self.folder.glob(f"{TABLE}.lance/**/*") if path.is_file()):
            digest.update(path.relative_to(self.folder).as_posix().encode() + b"\0")
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def _extend(self, causes: Sequence[Cause], load: Load) -> None:
        """Add what is new. Each add makes one version and one fragment: one of each is kept, whatever the
        number of commits."""
        while self.size < len(causes):
            self._add(causes[self.size : self.size + CHUNK], load)
        assert self._table is not None
        with warnings.catch_warnings():
            # It warns of other processes on the table: the run has one writer.
            warnings.simplefilter("ignore")
            self._table.optimize(cleanup_older_than=timedelta(0))
        mark = {"model": self.model, "causes": self.size, "checksum": _checksum(causes)}
        # Last: whatever is killed before it leaves files that the mark does not fit, and they are made
        # again.
        self._watermark.write_text(json.dumps(mark | {"files": self._digest()}))

    def _add(self, causes: Sequence[Cause], load: Load) -> None:
        pa: Any = import_module("pyarrow")  # it has no type hints
        rows = load(causes)
        flat = pa.array(np.ascontiguousarray(rows, dtype=np.float32).reshape(-1))
        data = pa.table(
            {
                "number": pa.array([c.number for c in causes], pa.int64()),
                "vector": pa.FixedSizeListArray.from_arrays(flat, rows.shape[1]),
            }
        )
        if self._table is None:
            self._table = lancedb().connect(self.folder).create_table(TABLE, data)
        else:
            self._table.add(data)
        self.size += len(causes)

    def nearest(self, vector: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """(n,) numbers and (n, d) vectors of the `limit` nearest by cosine; exact. In no order to rely on."""
        assert self._table is not None
        search: Any = self._table.search(np.asarray(vector, dtype=np.float32), vector_column_name="vector")
        # Vectors have length 1, so that the product is the cosine; no approximate index, which could miss
        # the nearest.
        found = search.distance_type("dot").bypass_vector_index().limit(limit).to_arrow()
        numbers = found["number"].to_numpy()
        flat = found["vector"].combine_chunks().values.to_numpy()
        return numbers, flat.reshape(len(numbers), -1)
