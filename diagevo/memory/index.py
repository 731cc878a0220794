"""The derived vector index for very many causes: LanceDB, exact (flat) search, made again when in doubt.

Written once a commit. A watermark beside the table says which causes of which embedding model it holds;
where the folder is missing, damaged, behind or another model's, it is made again. Deleting it costs time and
nothing else.
"""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from diagevo.memory.model import Cause

TABLE = "causes"
CHUNK = 10_000
Load = Callable[[Sequence[Cause]], np.ndarray]
"""(n, d) vectors of causes, from SQL."""


def _checksum(causes: Sequence[Cause]) -> str:
    digest = hashlib.sha256()
    for cause in causes:
        digest.update(f"{cause.cause_id} {len(cause.description)}:{cause.description}".encode())
    return digest.hexdigest()


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
        """Hold exactly `causes`: open what is there, add what is new, or make it again."""
        if self._table is not None and self.size == len(causes):
            return
        if not self._reuse(causes):
            shutil.rmtree(self.folder, ignore_errors=True)
            self._table, self.size = None, 0
        while self.size < len(causes):
            self._add(causes[self.size : self.size + CHUNK], load)
        # One add is one version and one fragment: keep one of each, whatever the number of commits.
        assert self._table is not None
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # it warns of other processes on the table: the run has one writer
            self._table.optimize(cleanup_older_than=timedelta(0))
        mark = {"model": self.model, "causes": self.size, "checksum": _checksum(causes)}
        self._watermark.write_text(json.dumps(mark))

    def _reuse(self, causes: Sequence[Cause]) -> bool:
        """Whether the folder holds a beginning of `causes`, and can be read to its end."""
        import lancedb

        try:
            mark = json.loads(self._watermark.read_text())
            size = int(mark["causes"])
            known = list(causes[:size])
            if mark["model"] != self.model or mark["checksum"] != _checksum(known) or size == 0:
                return False
            table = lancedb.connect(self.folder).open_table(TABLE)
            numbers = table.to_arrow()["number"].to_pylist()
            if sorted(numbers) != [c.number for c in known]:
                return False
        except (OSError, ValueError, KeyError, TypeError, RuntimeError):
            return False  # missing or damaged: SQL has it all
        self._table, self.size = table, size
        return True

    def _add(self, causes: Sequence[Cause], load: Load) -> None:
        import lancedb
        import pyarrow as pa

        rows = load(causes)
        flat = pa.array(np.ascontiguousarray(rows, dtype=np.float32).reshape(-1))
        data = pa.table(
            {
                "number": pa.array([c.number for c in causes], pa.int64()),
                "vector": pa.FixedSizeListArray.from_arrays(flat, rows.shape[1]),
            }
        )
        if self._table is None:
            self._table = lancedb.connect(self.folder).create_table(TABLE, data)
        else:
            self._table.add(data)
        self.size += len(causes)

    def nearest(self, vector: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """(n,) numbers and (n, d) vectors of the `limit` nearest by cosine; exact. In no order to rely on."""
        assert self._table is not None
        search: Any = self._table.search(np.asarray(vector, dtype=np.float32), vector_column_name="vector")
        found = search.distance_type("dot").bypass_vector_index().limit(limit).to_arrow()
        numbers = found["number"].to_numpy()
        flat = found["vector"].combine_chunks().values.to_numpy()
        return numbers, flat.reshape(len(numbers), -1)

    def versions(self) -> int:
        """Versions of the table on disk."""
        return 0 if self._table is None else len(self._table.list_versions())
