"""The options that every command takes after its name, and the decorator that makes a command."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer
from typer.main import get_command_from_info
from typer.models import CommandInfo

from diagevo.errors import ConfigError, DiagEvoError

from . import completion
from .call import Call, RowFormat

F = TypeVar("F", bound=str)
_ENDINGS: dict[str, RowFormat] = {name: name for name in get_args(RowFormat) if name != "table"}

_Run = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="ID",
        envvar="DIAGEVO_RUN",
        help="The run, or `latest`.",
        autocompletion=completion.runs,
    ),
]
_Db = Annotated[
    str | None,
    typer.Option("--db", metavar="URL", envvar="DIAGEVO_DB", help="The database. [default: runs/diagevo.db]"),
]
_Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", envvar="DIAGEVO_CONFIG", help="A configuration file."),
]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="One value of the configuration; may be repeated."),
]
_Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", envvar="DIAGEVO_PROFILE", help="The profile to start from."),
]
_Format = Annotated[
    RowFormat | None,
    typer.Option("--format", help="Format of rows; csv puts ' before a formula. [default: table]"),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to a file; .json, .jsonl, .csv, .parquet and .md set its format.",
    ),
]

CONFIGURATION = ("-c", "--set", "--profile")
"""The options of a command that reads a configuration."""
_ROWS = {"format": (_Format, None), "output": (_Output, None)}
_SOME = {
    "--run": ("run", _Run),
    "--db": ("db", _Db),
    "-c": ("config", _Config),
    "--set": ("settings", _Set),
    "--profile": ("profile", _Profile),
}
_ALL = {
    "json": (
        Annotated[
            bool, typer.Option("--json", help="Print JSON, in an envelope that says what it describes.")
        ],
        False,
    ),
    "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="Print only data and errors.")], False),
    "verbose": (
        Annotated[
            bool,
            typer.Option("--verbose", "-v", help="Print more to stderr, with tracebacks of internal errors."),
        ],
        False,
    ),
    "no_color": (Annotated[bool, typer.Option("--no-color", help="No colours, even on a terminal.")], False),
    "no_pager": (
        Annotated[bool, typer.Option("--no-pager", help="No pager for output longer than the screen.")],
        False,
    ),
}
BUILT: dict[str, Any] = {}
"""Each command by its path ("memory why"), filled by `command`."""


def command(
    path: str,
    *,
    example: str,
    rows: bool = False,
    pages: bool = False,
    reads: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make `function(call, …)` the command `path`, with the common options after its own. What it returns, a
    `Result`, is printed.

    Args:
        path: Its name behind `diagevo`, e.g. "memory why".
        example: What ends the help, one command a line.
        rows: Whether it prints rows: adds `--format` and `-o`.
        pages: Whether what it prints is finished when it ends, and may be shown by a pager.
        reads: Those of `CONFIGURATION` that mean something to it.
        without: `--run` where the command is about no run, `--db` where it opens no database.
    """
    schema = f"diagevo.{path.replace(' ', '.')}/1"
    taken = [option for option in ("--run", "--db", *reads) if option not in without]
    common = {name: (kind, None) for name, kind in map(_SOME.__getitem__, taken)}
    common |= (_ROWS if rows else {}) | _ALL

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        # A command may have an argument `run` or `config` of its own.
        names = {f"{name}_": name for name in common}

        @functools.wraps(function)
        def run(*, ctx: typer.Context, **given: Any) -> None:
            from .pager import paged
            from .render.result import emit

            call = _call(ctx, schema, {name: given.pop(key) for key, name in names.items()})
            try:
                with paged(call) if pages and not given.get("follow") else nullcontext(), call.stack:
                    if (result := function(call, **given)) is not None:
                        emit(call, result)
            except (DiagEvoError, typer.TyperException, typer.Exit, typer.Abort, OSError):
                raise
            except Exception:  # a bug, unless the log that it read is damaged
                from .damage import refuse_damaged

                refuse_damaged(call.database)
                raise

        del run.__wrapped__  # or inspect would read the signature of the function inside
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter("ctx", keyword, annotation=typer.Context),
            *(parameter.replace(kind=keyword) for parameter in own),
            *(
                inspect.Parameter(key, keyword, annotation=common[name][0], default=common[name][1])
                for key, name in names.items()
            ),
        ]
        vars(run)["__signature__"] = inspect.Signature(parameters)  # where inspect looks
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        lines = "\n".join(f"  {line.strip()}" for line in example.strip().splitlines())
        info = CommandInfo(path.rpartition(" ")[2], callback=run, epilog=f"\b\nExample:\n{lines}")
        BUILT[path] = get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
        return function

    return register


def _call(context: typer.Context, schema: str, given: dict[str, Any]) -> Call:
    """What the options say. Raises ConfigError for an empty name and for an ending that no format has."""
    for name in ("run", "db", "profile"):
        if given.get(name) == "":
            raise ConfigError(f"--{name} is empty", hint="give it a value, or leave it out")
    sources = {option: context.get_parameter_source(f"{name}_") for option, (name, _) in _SOME.items()}
    format = _format_of(given)
    return Call(
        run=given.get("run"),
        db=given.get("db"),
        config=given.get("config"),
        settings=tuple(given.get("settings") or ()),
        profile=given.get("profile"),
        quiet=given["quiet"],
        verbose=given["verbose"],
        color=not given["no_color"],
        pager=not given["no_pager"],
        json=format == "json",
        format=format,
        output=given.get("output"),
        typed=frozenset(o for o, source in sources.items() if source and source.name == "COMMANDLINE"),
        schema=schema,
    )


def _format_of(given: dict[str, Any]) -> RowFormat:
    """What `--format` says, else `--json`, else the end of the file's name, else a table."""
    if given["json"] and given.get("format") in (None, "table"):
        return "json"
    return given.get("format") or by_ending(given.get("output"), _ENDINGS, "table")


def by_ending(output: Path | None, endings: Mapping[str, F], text: F) -> F:
    """The format that the end of a file's name tells; that of text where there is no name, or it ends in
    .txt or nothing. Raises ConfigError for another ending."""
    ending = "" if output is None else output.suffix.removeprefix(".").lower()
    if ending in endings:
        return endings[ending]
    if ending in ("", "txt"):
        return text
    raise ConfigError(
        f"--output {output}: .{ending} is not the suffix of a format",
        hint=f"one of {', '.join(f'.{known}' for known in endings)}, .txt; or say which: --format {text}",
    )
