"""Which commands there are, in the order of use, and where each lives: a command's module is imported when
the command is asked for, and not before."""

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from typer.core import TyperGroup

from .options import BUILT

_WHOLE = 500
"""Characters of the longest sentence of a command in its group's help."""


class _Commands(UserDict[str, Any]):
    """The commands of a group by name: groups, and modules in `commands` until their command is read."""

    def __init__(self, path: str, homes: Mapping[str, Any]) -> None:
        super().__init__(homes)
        self._path = path

    def __getitem__(self, name: str) -> Any:
        if isinstance(module := self.data[name], str):
            import_module(f".commands.{module}", __package__)  # its decorators build
            self.data[name] = BUILT[f"{self._path} {name}".lstrip()]
        return self.data[name]


class Group(TyperGroup):
    """A group that knows its commands without their modules."""

    def __init__(self, homes: Mapping[str, "str | Group"], *, path: str = "", **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands(path, given.get("commands") or homes)
        self.homes = homes

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """As Typer's, but a sentence that has no room goes on in the next row where Typer cuts it."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_WHOLE)) for name, command in commands])


def _group(path: str, help: str, homes: Mapping[str, str | Group]) -> Group:
    name = path.rpartition(" ")[2]
    return Group(homes, path=path, name=name, help=help, no_args_is_help=True, rich_markup_mode=None)


def _of(module: str, names: str | None = None) -> dict[str, str]:
    return dict.fromkeys((names or module).split(), module)


PROGRAM: dict[str, str | Group] = {
    "init": "init",
    "doctor": "doctor",
    "config": _group(
        "config",
        "The resolved configuration, and where each value came from.",
        _of("config", "show diff"),
    ),
    "train": "train",
    "ingest": "ingest",
    "diagnose": "diagnose",
    "runs": _group(
        "runs",
        "List and compare runs; fork, export and import them.",
        _of("runs", "list show diff fork") | _of("runs_export", "export import"),
    ),
    "memory": _group(
        "memory",
        "Read the log, rebuild the memory, and query it.",
        _of("memory", "show why replay log schedule")
        | _of("memory_whatif", "what-if")
        | _of("memory_verify", "verify")
        | _of("memory_query", "query rebuild")
        | _of("diagnosis", "calibrate"),
    ),
    "view": "view",
    "report": _group("report", "The figures of a run, alone or on its pages.", _of("report", "build")),
    "eval": _group(
        "eval",
        "Evaluate models on benchmarks and compare the results.",
        _of("evaluate_run", "run") | _of("evaluate", "show compare") | _of("labels", "labels selfplay"),
    ),
    "ablate": _group(
        "ablate",
        "Plan the paper's ablations, run them, and compare the results.",
        _of("ablate", "plan run compare"),
    ),
    "mcp": "mcp",
    "db": _group(
        "db",
        "Migrate, check and back up the database.",
        _of("db", "upgrade status backup restore"),
    ),
}


def modules(homes: Mapping[str, str | Group] = PROGRAM) -> set[str]:
    """Where the commands live."""
    inner = [home.homes for home in homes.values() if isinstance(home, Group)]
    return {home for home in homes.values() if isinstance(home, str)}.union(*map(modules, inner))
