"""The options that every command takes after its name, and the decorator that makes a command."""

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.main import get_command_from_info
from typer.models import CommandInfo

from diagevo.errors import ConfigError, DiagEvoError

from .call import CommandContext, RowFormat

_ENDINGS: dict[str, RowFormat] = {name: name for name in get_args(RowFormat) if name != "table"}

CONFIGURATION = ("-c", "--set", "--profile")
"""The options of a command that reads a configuration."""
_NAMES = {"--run": "run", "--db": "db", "-c": "config", "--set": "settings", "--profile": "profile"}
"""Attributes of `CommandContext`, by the options that only some commands take."""
_COMMON: dict[str, Any] = {
    "run": Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="ID",
            envvar="DIAGEVO_RUN",
            help="The run, or `latest`.",
        ),
    ],
    "db": Annotated[
        str | None,
        typer.Option("--db", metavar="URL", envvar="DIAGEVO_DB", help="The database. [runs/diagevo.db]"),
    ],
    "config": Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", envvar="DIAGEVO_CONFIG", help="A configuration file."),
    ],
    "settings": Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY.PATH=VALUE", help="Set one configuration value; repeatable."),
    ],
    "profile": Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="NAME", envvar="DIAGEVO_PROFILE", help="The profile to start from."
        ),
    ],
    "format": Annotated[
        RowFormat | None,
        typer.Option("--format", help="Output format; csv puts ' before formulas. [default: table]"),
    ],
    "output": Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to a file; its suffix sets the format."),
    ],
    "json": Annotated[bool, typer.Option("--json", help="Print JSON.")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Print only data and errors.")],
    "verbose": Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print more to stderr, and tracebacks of internal errors."),
    ],
    "no_color": Annotated[bool, typer.Option("--no-color", help="No colours, even on a terminal.")],
}
BUILT: dict[str, Any] = {}
"""Each command by its path ("memory why"), filled by `command`."""


def command(
    path: str,
    *,
    example: str,
    rows: bool = False,
    reads: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make `function(call, …)` the command `path`, with the common options after its own. The `Result` that
    it returns is printed.

    Args:
        path: Its name behind `diagevo`, e.g. "memory why".
        example: The end of the help, one command per line.
        rows: Whether it prints rows: adds `--format` and `-o`.
        reads: The options in `CONFIGURATION` that it uses.
        without: `--run` if the command concerns no run, `--db` if it opens no database.
    """
    taken = [_NAMES[option] for option in ("--run", "--db", *reads) if option not in without]
    taken += [*(["format", "output"] if rows else []), "json", "quiet", "verbose", "no_color"]

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        @functools.wraps(function)
        def run(*, ctx: typer.Context, **given: Any) -> None:
            from .render.result import emit

            call = _call(ctx, path, {name: given.pop(f"{name}_") for name in taken})
            try:
                with call.stack:
                    if (result := function(call, **given)) is not None:
                        emit(call, result)
            except (DiagEvoError, typer.TyperException, typer.Exit, typer.Abort, OSError):
                raise
            except Exception:  # a bug, unless the log that it read is damaged
                from .opening import refuse_damaged

                refuse_damaged(call.database)
                raise

        del run.__wrapped__  # otherwise inspect would read the signature of the inner function
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter("ctx", keyword, annotation=typer.Context),
            *(parameter.replace(kind=keyword) for parameter in own),
            # A command may have an argument `run` or `config` of its own.
            *(
                inspect.Parameter(
                    f"{name}_",
                    keyword,
                    annotation=_COMMON[name],
                    default=False if get_args(_COMMON[name])[0] is bool else None,
                )
                for name in taken
            ),
        ]
        vars(run)["__signature__"] = inspect.Signature(parameters)  # where inspect looks for it
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        lines = "\n".join(f"  {line.strip()}" for line in example.strip().splitlines())
        info = CommandInfo(path.rpartition(" ")[2], callback=run, epilog=f"\b\nExample:\n{lines}")
        BUILT[path] = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
        return function

    return register


def _call(context: typer.Context, path: str, given: dict[str, Any]) -> CommandContext:
    """The options as a `CommandContext`. Raises ConfigError for an empty name or an unknown suffix."""
    for name in ("run", "db", "profile"):
        if given.get(name) == "":
            raise ConfigError(f"--{name} is empty", hint="give it a value, or leave it out")
    sources = {option: context.get_parameter_source(f"{name}_") for option, name in _NAMES.items()}
    format = given.get("format")
    if given.pop("json"):
        if format not in (None, "json"):
            raise ConfigError(f"--json and --format {format} are two formats", hint="leave one out")
        format = "json"
    return CommandContext(
        **given
        | {
            "settings": tuple(given.get("settings") or ()),
            "format": format or _ending(given.get("output")),
            "typed": frozenset(o for o, source in sources.items() if source and source.name == "COMMANDLINE"),
            "schema": f"diagevo.{path.replace(' ', '.')}/1",
        }
    )


def _ending(output: Path | None) -> RowFormat:
    """The format for a file's suffix; a table if there is no file, no suffix, or .txt. Raises
    ConfigError for another suffix."""
    ending = "" if output is None else output.suffix.removeprefix(".").lower()
    if ending in ("", "txt"):
        return "table"
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    raise ConfigError(
        f"--output {output}: .{ending} is not the suffix of a format",
        hint=f"one of {', '.join(f'.{known}' for known in _ENDINGS)}, .txt; or say which: --format table",
    )
