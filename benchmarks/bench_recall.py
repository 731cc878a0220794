"""Row 7: the nearest of 1,000 causes in 1,024 numbers, by numpy and by LanceDB's flat search."""

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.rows import Row, at_most, faster, side_by_side
from diagevo.memory.nearest.similarity import Matrix, best_first

CAUSES, DIMENSION, SEARCHES = 1000, 1024, 200


def _unit(rng: np.random.Generator, n: int) -> np.ndarray:
    rows = rng.normal(size=(n, DIMENSION)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def rows() -> list[Row]:
    import lancedb

    rng = np.random.default_rng(0)
    vectors, queries = _unit(rng, CAUSES), _unit(rng, SEARCHES)
    matrix = Matrix()
    matrix.extend([f"c{i + 1}" for i in range(CAUSES)], vectors)

    def numpy_search() -> None:
        for query in queries:
            best_first(matrix.similarities(query))

    with tempfile.TemporaryDirectory() as folder:
        table = lancedb.connect(Path(folder)).create_table("causes", [{"vector": v} for v in vectors])

        def lance_search() -> None:
            for query in queries[:20]:
                table.search(query).limit(10).to_arrow()

        took = side_by_side({"ours": lambda: numpy_search, "lance": lambda: lance_search}, repeat=5)
    ours, reference = took["ours"] / SEARCHES * 1e3, took["lance"] / 20 * 1e3
    what = f"nearest causes, {CAUSES:,} × {DIMENSION}"
    return [at_most(what, ours, "ms", 0.3), faster(what, ours, reference, "LanceDB flat search", 1, "ms")]
