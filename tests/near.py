"""What a change is near to: the modules that import a file, and the tests of it.

`python -m tests.near importers` lists, for pyright, the Python files that differ from the last commit and
those that import them; `python -m tests.near tests FILE` the tests named for a file or importing it.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MANY = 12
"""A module that more test files import is everybody's: only those named for it are its own."""
EVERY_COMMAND = ("tests/cli/test_help.py", "tests/cli/memory/test_listing.py")
"""What holds each command, also one that no test calls yet."""
CALLING = 3
"""Test files of a command: those that call it most. Some are called in dozens, to have a run at all."""


def module_of(file: Path) -> str:
    """`cli/render/table.py` is installed as `diagevo.cli.render.table`, and imports itself so."""
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def changed() -> list[Path]:
    """Python files of the program and its tests that differ from the last commit, new ones too."""
    git = ["git", "ls-files", "--modified", "--others", "--exclude-standard", "--deduplicate", "*.py"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [file for file in map(Path, listed.splitlines()) if (ROOT / file).exists()]


def importers(files: list[Path]) -> set[Path]:
    """The files, and those that import one of them by name."""
    import grimp

    graph = grimp.build_graph("diagevo", "cli")
    near, waiting = set(files), [module_of(file) for file in files]
    while waiting:
        if (module := waiting.pop()) not in graph.modules:
            continue
        for other in graph.find_modules_that_directly_import(module):
            path = Path(*other.split("."))
            if (ROOT / path / "__init__.py").exists():  # it passes names on: who imports them names it alone
                path = path / "__init__.py"
                waiting += [other] if path not in near else []
            else:
                path = path.with_suffix(".py")
            near.add(path)
    return near


def tests_of(file: Path) -> list[Path]:
    """Tests named for the file, in the folder that mirrors its own or anywhere, and those that import it; of
    a command, those that call it most."""
    if file.parts[0] == "tests" and file.name.startswith("test_"):
        return [file]
    module = module_of(file).replace("cli", "diagevo.cli", 1) if file.parts[0] == "cli" else module_of(file)
    parent, _, name = module.rpartition(".")
    every = sorted((ROOT / "tests").rglob("test_*.py"))
    names = {f"test_{file.stem}", f"test_{file.parent.name}"} - {"test_commands"}
    named = [test for test in every if test.stem in names]
    said = (f"{module} import", f"import {module}", f"from {parent} import {name}")
    importing = [test for test in every if any(one in test.read_text() for one in said)]
    own = [*named, *(importing if len(importing) <= MANY else ()), *callers(file, every)]
    folder = ROOT / "tests" / Path(*file.parent.parts[1:])
    if not own and len(file.parts) > 2 and folder.is_dir():
        own = [folder]
    return [test.relative_to(ROOT) for test in dict.fromkeys(own)]


def callers(file: Path, tests: list[Path]) -> list[Path]:
    """Of the commands that a file has, the tests that call them most; those of every command for new ones."""
    commands = re.findall(r'@options\.command\(\s*"([^"]+)"', (ROOT / file).read_text())
    calls = [f'("{name}"'.replace(" ", '", "') for name in commands]
    counts = {test: sum(test.read_text().count(call) for call in calls) for test in tests}
    called = [test for test in tests if counts[test]]
    if commands and not called:
        return [ROOT / test for test in EVERY_COMMAND]
    return sorted(called, key=lambda test: -counts[test])[:CALLING]


def main(what: str, *files: str) -> None:
    """Print paths, one a line."""
    near = importers(changed()) if what == "importers" else {t for f in files for t in tests_of(Path(f))}
    if what == "tests" and not near:
        sys.exit(f"no test is named for {' '.join(files)}: make test-fast")
    print("\n".join(map(str, sorted(near))))


if __name__ == "__main__":
    main(*sys.argv[1:])
