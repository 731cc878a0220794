"""Next steps that messages name: each command is there, and has the options that it is said to have."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.cli.program import command, leaves

ROOT = Path(__file__).parents[2]
OPTIONS = {
    path: {"--help"}
    | {name for parameter in leaf.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for path, leaf in leaves(command())
}
SAID = re.compile(r"diagevo ([a-z][a-z ]*[a-z])((?: (?:--?[a-z][a-z-]*|[A-Z{][\w{}.\[\]:]*|[a-z0-9_.{}]+))*)")


def _texts() -> Iterator[tuple[str, str]]:
    """Every literal of the program with the file it stands in; what is put into one is {}."""
    for folder in ("diagevo", "cli"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            if "_migrations" in file.parts:
                continue
            tree = ast.parse(file.read_text(encoding="utf-8"))
            inside: set[int] = set()
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    inside |= {id(value) for value in node.values}
                    parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
                    yield str(file.relative_to(ROOT)), "".join(map(str, parts))
                elif (
                    isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside
                ):
                    yield str(file.relative_to(ROOT)), node.value


def _command(words: str) -> tuple[str, ...] | None:
    """The longest beginning of the words that is a command."""
    said = tuple(words.split())
    return next((said[:n] for n in range(len(said), 0, -1) if said[:n] in OPTIONS), None)


def test_every_command_that_a_message_names_has_the_options_it_names() -> None:
    wrong = [
        (file, found[0])
        for file, text in _texts()
        for found in SAID.finditer(text)
        if (path := _command(found[1])) is not None
        for option in re.findall(r" (--[a-z][a-z-]*)", found[2])
        if option not in OPTIONS[path]
    ]
    assert wrong == []


def test_resume_is_told_of_train_alone() -> None:
    """Other commands go on by being run again."""
    told = [(file, text) for file, text in _texts() if re.search(r"(?:with|add|then) --resume", text)]
    assert [text for _, text in told if "diagevo train" not in text] == []
    assert told, "the hint of a diagnostician that does not answer"
