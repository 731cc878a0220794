"""SECURITY.md promises what is tested: every promise names its tests, and every named test is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def _tests(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def _rows() -> list[tuple[str, str]]:
    """The promises of the tables, and what stands beside each."""
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", TEXT, re.MULTILINE)
    return [(promise, beside) for promise, beside in rows if beside != "checked by"]


def test_every_test_that_security_names_is_there() -> None:
    named = NAMED.findall(TEXT)
    assert [(file, test) for file, test in named if test not in _tests(ROOT / file)] == []


def test_every_promise_of_security_names_its_tests_and_nothing_else() -> None:
    rows = _rows()
    assert len(rows) > 30, "or the tables have another form"
    assert [promise for promise, beside in rows if NAMED.sub("", beside).strip(", ") or not beside] == []
