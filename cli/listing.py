"""The commands, in the order of use, and the module in `commands` that defines each. A module is imported
only when its command is used."""

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from typer.core import TyperGroup

from .options import BUILT


class _Commands(UserDict[str, Any]):
    """The commands of a group by name; a module's name stands in for a command until the module is
    imported."""

    def __init__(self, path: str, homes: Mapping[str, Any]) -> None:
        super().__init__(homes)
        self._path = path

    def __getitem__(self, name: str) -> Any:
        if isinstance(module := self.data[name], str):
            import_module(f".commands.{module}", __package__)  # its decorators build
            self.data[name] = BUILT[f"{self._path} {name}".lstrip()]
        return self.data[name]


class Group(TyperGroup):
    """A group that prints its help if no command is named."""

    def __init__(self, homes: Mapping[str, Any], *, path: str = "", **given: Any) -> None:
        super().__init__(**{"rich_markup_mode": None, **given})
        self.commands = _Commands(path, homes)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])


def _group(name: str, help: str, **modules: str) -> Group:
    """The commands of each module, by name."""
    homes = {command: module for module, commands in modules.items() for command in commands.split()}
    return Group(homes, path=name, name=name, help=help)


PROGRAM: dict[str, str | Group] = {
    "init": "init",
    "doctor": "doctor",
    "config": _group("config", "Show and compare configurations.", config="show diff"),
    "train": "train",
    "ingest": "ingest",
    "diagnose": "diagnose",
    "runs": _group(
        "runs",
        "List and compare runs; fork, export and import them.",
        runs="list show",
        runs_diff="diff",
        runs_fork="fork",
        runs_export="export import",
    ),
    "memory": _group(
        "memory",
        "Read the log, rebuild the memory, and query it.",
        memory="show why replay log schedule",
        memory_whatif="what-if",
        memory_assign="assign label",
        memory_upkeep="query verify rename dismiss rebuild calibrate",
    ),
    "view": "view",
    "report": _group("report", "Figures and tables of runs.", report="build"),
    "eval": _group(
        "eval",
        "Evaluate models on benchmarks and compare the results.",
        evaluate_run="run labels",
        evaluate="show compare",
    ),
    "ablate": _group(
        "ablate", "Plan the paper's ablations, run them, and compare the results.", ablate="plan run compare"
    ),
    "mcp": "mcp",
    "db": _group("db", "Migrate, check and back up the database.", db="upgrade status backup restore"),
}
