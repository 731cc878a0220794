"""A public name of a class, or of a file, means one thing in the whole program."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED = {"Embedder"}
"""Names that still mean two things: none may be added."""


def test_no_public_class_has_the_name_of_another() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for room in ("diagevo", "cli"):
        for file in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert len(found) > 200
    assert {name: where for name, where in found.items() if len(where) > 1 and name not in SHARED} == {}


def test_no_file_has_the_name_of_another() -> None:
    """But for `__init__`: a reader guesses the file. Commands share their noun with their screen."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in sorted((ROOT / "diagevo").rglob("*.py")):
        found[file.name].append(str(file.relative_to(ROOT)))
    del found["__init__.py"]
    assert len(found) > 200
    assert {name: where for name, where in found.items() if len(where) > 1} == {}
