"""Reference pages that are made from the code: commands, configuration, equations, events and views.

A Sphinx extension; it writes them into `reference/` before each build; they are never edited and never
committed.
"""

import ast
import logging
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from typer.main import get_command
from typer.testing import CliRunner

PREFIX = re.compile(r"[a-z][\w.]*\.(?=[A-Z])")
"""Of a name: where the class lives."""
PACKAGE = Path(__file__).parents[1] / "diagevo"
EQUATION = re.compile(r"Equation (\d+)((?:, [^:]+)?): (.*?)(?:\n\n|$)", re.DOTALL)
HERE = Path(__file__).parent / "reference"


def cell(text: object) -> str:
    """Text as it may stand in a cell of a Markdown table."""
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "\\<").replace("{", "\\{")


def table(head: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *(tuple(cell(value) for value in row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def commands() -> str:
    """The help of every command, as the program prints it."""
    [entry] = entry_points(group="console_scripts", name="diagevo")
    program = entry.load()
    parts = [
        "# Commands",
        "What `diagevo COMMAND --help` prints. Data goes to stdout, everything else to stderr.",
    ]
    for path in [(), *_leaves(get_command(program))]:
        shown = CliRunner().invoke(program, [*path, "--help"], env={"COLUMNS": "100", "TERM": "dumb"})
        parts.append(f"## {' '.join(('diagevo', *path))}\n\n```text\n{shown.stdout.strip()}\n```")
    return "\n\n".join(parts)


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path
        return
    for name in command.list_commands(None):
        yield from _leaves(inner[name], (*path, name))


def configuration() -> str:
    """Every setting with its default and the reason for it."""
    from pydantic_core import PydanticUndefined

    from diagevo.config.sources import dotted, fields

    def rows() -> Iterator[tuple[object, ...]]:
        for path, info in fields():
            default = info.default if info.default is not PydanticUndefined else ""
            choices = [repr(v).replace("'", "") for v in get_args(info.annotation) if isinstance(v, str)]
            told = (info.description or "") + (f" One of: {', '.join(choices)}." if choices else "")
            yield f"`{dotted(path)}`", "" if default is None else f"`{default}`", told

    return "\n\n".join(
        [
            "# Configuration",
            "Every key of a configuration file, with its default. A dot is a level of the file, or two"
            " underscores in a variable: `filter.tau` is `DIAGEVO_FILTER__TAU`. Which source wins:"
            " [](../howto/configure.md).",
            table(("key", "default", "why"), rows()),
        ]
    )


def events() -> str:
    """Every event of the log with its fields."""
    from diagevo.memory.events import catalogue as catalogue

    told = ModuleAnalyzer.for_module(catalogue.__name__).find_attr_docs()
    parts_of_events = [
        found
        for found in vars(catalogue).values()
        if isinstance(found, type) and issubclass(found, catalogue.Value) and found.__struct_fields__
    ]
    kinds = {str(kind): name for name, kind in vars(catalogue).items() if get_origin(kind) is Annotated}
    parts = [
        "# Events",
        cleandoc(catalogue.__doc__ or "").partition("\n")[2].strip(),
        table(("type", "what it is"), ((f"`{n}`", " ".join(told["", n])) for n in kinds.values())),
    ]
    for part in sorted(parts_of_events, key=lambda one: not issubclass(one, catalogue.Event)):

        def rows(part: Any = part) -> Iterator[tuple[object, ...]]:
            hints = get_type_hints(part, include_extras=True)
            for name in part.__struct_fields__:
                kind = hints[name]
                said = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
                for long, short in kinds.items():
                    said = said.replace(f"typing.Optional[{long}]", f"{short} | None").replace(long, short)
                doc = " ".join(told.get((part.__name__, name), ()))
                yield f"`{name}`", f"`{PREFIX.sub('', said)}`", doc

        doc = cleandoc(part.__doc__) if part.__doc__ and part.__doc__ != catalogue.Event.__doc__ else ""
        parts += [f"## {part.__name__}", doc, table(("field", "type", "what it says"), rows())]
    return "\n\n".join(part for part in parts if part)


def views() -> str:
    """The stable views with their columns, as a new database has them."""
    from tempfile import TemporaryDirectory

    import diagevo
    from diagevo.memory.audit.query import view_columns
    from diagevo.memory.log.database import Database
    from diagevo.memory.read.views import ABOUT

    with TemporaryDirectory() as folder:
        location = f"{folder}/a.db"
        diagevo.open(location, "a").close()
        database = Database(location)
        columns = view_columns(database)
        database.close()
    parts = [
        "# Views",
        "What `diagevo memory query` reads. `run_id` is a column of every view; `:run` in a statement is the"
        " run's name.",
    ]
    for name, told in ABOUT.items():
        parts += [f"## {name}", told[0].upper() + told[1:] + ".", ", ".join(f"`{c}`" for c in columns[name])]
    return "\n\n".join(parts)


def equations() -> str:
    """Each equation of the paper with its one home: a docstring that begins "Equation N:" says so."""

    def rows() -> Iterator[tuple[object, ...]]:
        found = []
        for file in sorted(PACKAGE.rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                named = isinstance(node, ast.ClassDef | ast.FunctionDef)
                if named and (told := EQUATION.match(ast.get_docstring(node) or "")):
                    found.append((int(told[1]), told[1] + told[2], told[3], file, node.name))
        for _, equation, text, file, name in sorted(found):
            yield equation, text, f"`{file.relative_to(PACKAGE)}: {name}`"

    return "\n\n".join(
        [
            "# Equations",
            "Each equation of the paper stands in one place, which play, replay, what-if, why and report"
            " call.",
            table(("equation", "what it says", "where"), rows()),
        ]
    )


PAGES = {
    "equations": equations,
    "commands": commands,
    "configuration": configuration,
    "events": events,
    "views": views,
}


def write(_: Sphinx) -> None:
    logging.getLogger("alembic").setLevel(logging.WARNING)
    for name, page in PAGES.items():
        text = page() + "\n"
        path = HERE / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}
