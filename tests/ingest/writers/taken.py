"""Functions out of other people's files, run as they stand, and what is true of the rollouts they wrote."""

import ast
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def taken(file: Path, name: str, names: dict[str, Any], within: str | None = None) -> Any:
    """The function `name` of a file whose imports want a cluster, with `names` for its globals; with `within`
    the method of that class. The last one of the name is the one that counts, as in Python."""
    tree: ast.AST = ast.parse(file.read_text(encoding="utf-8"))
    if within is not None:
        tree = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == within)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    function = [n for n in ast.walk(tree) if isinstance(n, functions) and n.name == name][-1]
    function.decorator_list, function.returns = [], None
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    exec(compile(ast.Module([function], []), str(file), "exec"), names)
    return names[name]


class Truth:
    """What was played, by group: written beside the files that a trainer's code made of it."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Any]] = {}

    def add(
        self,
        group: str,
        step: int,
        prompt: str,
        texts: Sequence[str],
        reward: float,
        answer: str | None = None,
    ) -> None:
        found = self.groups.setdefault(
            group, {"step": step, "prompt": prompt, "answer": answer, "rollouts": []}
        )
        found["rollouts"].append({"texts": list(texts), "reward": reward})

    def write(self, folder: Path, made_with: str) -> None:
        """Sorted by step, so that the file is the same each time."""
        groups = sorted(self.groups.values(), key=lambda g: (g["step"], g["prompt"], str(g["rollouts"])))
        text = json.dumps({"made_with": made_with, "groups": groups}, indent=1, ensure_ascii=False)
        (folder / "truth.json").write_text(text + "\n", encoding="utf-8")
