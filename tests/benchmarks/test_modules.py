"""`make bench` asks every bench_*.py for its rows."""

import ast
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_benchmark_gives_rows() -> None:
    for file in BENCHMARKS.glob("bench_*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert "rows" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, file.name
