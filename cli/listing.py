"""Which commands there are, in the order of use, and where each lives: a command's module is imported when
the command is asked for, and not before."""

from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info, get_group

from .options import BELOW, accept_common

Homes = Mapping[str, "str | typer.Typer"]
"""By a command's name: its module in `commands`, or the group that it is."""


_WHOLE = 500
"""Characters of the longest sentence of a command in its group's help."""


class _Commands(UserDict[str, Any]):
    """The commands of a group by name. Where only a home is known, the command is made when it is read."""

    def __init__(self, app: typer.Typer, known: Mapping[str, Any]) -> None:
        super().__init__(known)
        self._app = app

    def __getitem__(self, name: str) -> Any:
        found = self.data[name]
        if isinstance(found, typer.Typer):
            self.data[name] = get_group(found)
        elif isinstance(found, str):
            self.data[name] = self._made(name, found)
        return self.data[name]

    def _made(self, name: str, module: str) -> Any:
        import_module(f".commands.{module}", __package__)  # its decorators tell `app`
        [info] = [info for info in self._app.registered_commands if info.name == name]
        return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)


class Listed(TyperGroup):
    """A group that knows its commands without their modules."""

    app = typer.Typer()
    """Where the modules register their commands."""
    homes: ClassVar[Homes] = {}

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Commands(self.app, {**self.homes, **self.commands})

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """As Typer's, but a sentence that has no room goes on in the next row where Typer cuts it."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_WHOLE)) for name, command in commands])


class _Served(Listed):
    """`diagevo view` alone serves; a command's name chooses another one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not any(word in self.commands for word in args) and not {"-h", "--help"} & set(args):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


def listed(app: typer.Typer, homes: Homes, cls: type[Listed] = Listed) -> None:
    """Let `app` be a group of these commands."""
    app.info.cls = type(cls.__name__, (cls,), {"app": app, "homes": homes})


def _group(name: str, help: str, homes: Homes, cls: type[Listed] = Listed) -> typer.Typer:
    """A group of commands that takes the common options before the command's name."""
    app = typer.Typer(
        name=name,
        help=help,
        epilog="All options are those of `diagevo --help`.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    listed(app, homes, cls)
    accept_common(app, BELOW)
    return app


def _of(module: str, names: str | None = None) -> dict[str, str]:
    return dict.fromkeys((names or module).split(), module)


config = _group(
    "config",
    "The resolved configuration, and where each value came from.",
    _of("config", "show validate diff schema"),
)
runs = _group(
    "runs",
    "Which runs there are, how they compare, and new ones from a committed round.",
    _of("runs", "list show diff fork") | _of("runs_export", "export"),
)
memory = _group(
    "memory",
    "Read the log, rebuild the memory, and ask it why.",
    _of("memory", "show why replay log schedule")
    | _of("memory_compare", "diff blame")
    | _of("memory_whatif", "what-if")
    | _of("memory_verify", "verify heads")
    | _of("memory_bundle", "query export import rebuild")
    | _of("diagnosis", "calibrate"),
)
view = _group(
    "view", "Look at runs in the browser; without a command: serve.", _of("view", "serve export"), _Served
)
report = _group(
    "report", "The figures of a run, alone or on its pages.", _of("report", "list build fig table")
)
oracle = _group(
    "oracle",
    "Reference answers for self-play questions: drawn, proposed, checked by a human.",
    _of("oracle", "sample propose export import"),
)
evaluate = _group(
    "eval",
    "Measure models on the benchmarks and compare what was measured.",
    _of("evaluate", "list")
    | _of("evaluate_run", "run")
    | _of("evaluate", "show compare")
    | _of("oracle", "selfplay")
    | {"oracle": oracle},
)
ablate = _group(
    "ablate",
    "Plan the paper's ablations, play them, and see what they show.",
    _of("ablate", "plan run status compare"),
)
db = _group(
    "db",
    "Revisions of the database, its checks, its backups.",
    _of("db", "current upgrade check backup restore"),
)

program = typer.Typer(
    name="diagevo",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PROGRAM: Homes = {
    "init": "init",
    "doctor": "doctor",
    "config": config,
    "train": "train",
    "ingest": "ingest",
    "diagnose": "diagnose",
    "runs": runs,
    "memory": memory,
    "view": view,
    "report": report,
    "eval": evaluate,
    "ablate": ablate,
    "mcp": "mcp",
    "db": db,
    "schema": "schema",
}


def _homes(group: typer.Typer) -> Homes:
    cls = group.info.cls
    assert isinstance(cls, type)
    assert issubclass(cls, Listed)
    return cls.homes


def modules(homes: Homes = PROGRAM) -> set[str]:
    """Where the commands live."""
    inner = [_homes(group) for group in homes.values() if isinstance(group, typer.Typer)]
    return {home for home in homes.values() if isinstance(home, str)}.union(*map(modules, inner))


def import_all() -> None:
    """Import every command."""
    for module in modules():
        import_module(f".commands.{module}", __package__)
