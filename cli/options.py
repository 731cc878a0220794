"""The options that every command takes, before or after its name, and the decorator that adds them."""

import copy
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

import typer

from diagevo.errors import ConfigError, DiagEvoError

from . import completion

if TYPE_CHECKING:
    from diagevo.config.loading import Resolved
    from diagevo.config.models import Config
    from diagevo.config.sources import KeyPath
    from diagevo.memory.audit.history import History

F = TypeVar("F", bound=str)
RowFormat = Literal["table", "json", "jsonl", "csv", "parquet", "md"]
_ENDINGS: dict[str, RowFormat] = {name: name for name in get_args(RowFormat) if name != "table"}


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked for beside the command's own arguments: the first parameter of every command."""

    run: str | None = None
    """`--run`; None means the latest run where a run is read, a new name where one is made."""
    db: str | None = None
    config: Path | None = None
    settings: tuple[str, ...] = ()
    profile: str | None = None
    quiet: bool = False
    verbose: bool = False
    color: bool = True
    pager: bool = True
    json: bool = False
    format: RowFormat = "table"
    output: Path | None = None
    written: frozenset[str] = frozenset()
    """Which options that some command cannot use were typed. Variables of the environment are for whoever
    reads them."""
    schema: str = field(default="", compare=False)
    """Name of the JSON the command prints, e.g. `diagevo.memory.why/1`."""

    @property
    def home(self) -> Path:
        """`DIAGEVO_HOME`: the default database, and a folder a run."""
        return Path(os.environ.get("DIAGEVO_HOME") or "runs")

    @property
    def database(self) -> str:
        """URL or path of the database: `--db`, `DIAGEVO_DB`, or `diagevo.db` in the home folder."""
        return self.db or f"sqlite:///{self.home / 'diagevo.db'}"

    @property
    def database_again(self) -> list[str]:
        """The arguments by which a command that is suggested finds the same database; no password in them."""
        from diagevo.memory.log.location import database_url, shown

        if not self.db or self.db == os.environ.get("DIAGEVO_DB"):
            return []
        return ["--db", shown(database_url(self.db)) if "://" in self.db else self.db]

    def resolve(self) -> "Resolved":
        """The configuration with the source of each value."""
        from diagevo.config.loading import resolve

        return resolve(file=self.config, settings=self.settings, profile=self.profile)

    def own_words(self) -> "dict[KeyPath, Any]":
        """What the user's own files, variables and `--set` say, by key."""
        from diagevo.config.loading import own_layers

        layers = own_layers(file=self.config, settings=self.settings)
        return {path: value for layer in reversed(layers) for path, value in layer.values.items()}

    def config_in_log(self, history: "History", stored: "Mapping[str, Any]") -> dict[str, Any]:
        """`stored`, a configuration of the run, as it may be used here: of a run from outside, what reaches
        other machines counts only in the user's own words. Raises ConfigError."""
        from diagevo.config.outside import said_again

        if history.log.imported(history.run_id) is None:
            return dict(stored)
        return said_again(stored, history.run_id, self.own_words())

    def load_config(self) -> "Config":
        return self.resolve().config


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
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only data and errors.")]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="More on stderr; tracebacks of bugs.")]
_NoColor = Annotated[bool, typer.Option("--no-color", help="No colours, also on a terminal.")]
_NoPager = Annotated[bool, typer.Option("--no-pager", help="No pager for what is longer than the screen.")]
_Json = Annotated[bool, typer.Option("--json", help="JSON; its schema: `diagevo schema COMMAND`.")]
_Format = Annotated[
    RowFormat | None,
    typer.Option("--format", help="How rows are printed; csv puts ' before a formula. [default: table]"),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to a file; .json, .jsonl, .csv, .parquet and .md give its format.",
    ),
]

COMMON: dict[str, tuple[Any, Any]] = {
    "run_": (_Run, None),
    "db_": (_Db, None),
    "config_": (_Config, None),
    "set_": (_Set, None),
    "profile_": (_Profile, None),
    "quiet_": (_Quiet, False),
    "verbose_": (_Verbose, False),
    "no_color_": (_NoColor, False),
    "no_pager_": (_NoPager, False),
    "json_": (_Json, False),
}
_ROWS: dict[str, tuple[Any, Any]] = {"format_": (_Format, None), "output_": (_Output, None)}

_NOT_FOR_ALL = {"config_": "-c", "set_": "--set", "profile_": "--profile", "run_": "--run", "db_": "--db"}
_EVERYWHERE = "-q, -v, --no-color, --no-pager and --json"
CONFIGURATION = ("-c", "--set", "--profile")
"""The options of a command that reads a configuration."""


def _hidden(annotation: Any) -> Any:
    """The same option without its line in the help: the program's own help has it once for all commands."""
    option = copy.copy(annotation.__metadata__[0])
    option.hidden = True
    return Annotated[annotation.__origin__, option]


BELOW = {name: (_hidden(annotation), default) for name, (annotation, default) in COMMON.items()}


def _format_of(given: dict[str, Any], json: bool, output: Path | None) -> RowFormat:
    """What `--format` says, else `--json`, else the end of the file's name, else a table. Raises ConfigError
    for an ending that no format has."""
    if json and given.get("format_") in (None, "table"):
        return "json"
    if given.get("format_") is not None:
        return given["format_"]
    return by_ending(output, _ENDINGS, "table")


def by_ending(output: Path | None, endings: Mapping[str, F], text: F) -> F:
    """The format that the end of a file's name tells; that of text where there is no name, or it ends in
    .txt or nothing. Raises ConfigError for another ending."""
    ending = "" if output is None else output.suffix.removeprefix(".").lower()
    if ending in endings:
        return endings[ending]
    if ending in ("", "txt"):
        return text
    raise ConfigError(
        f"--output {output}: .{ending} is the ending of no format",
        hint=f"one of {', '.join(f'.{known}' for known in endings)}, .txt; or say which: --format {text}",
    )


def _merge(above: Call, given: dict[str, Any], context: typer.Context) -> Call:
    """The call as it stands after the options given at one more level; the nearest to the command wins."""
    for name in ("run", "db", "profile"):
        if given[f"{name}_"] == "":
            raise ConfigError(f"--{name} is empty", hint="give it a value, or leave it out")
    output = given.get("output_", above.output)
    json = given["json_"] or above.json
    format = _format_of(given, json, output)
    sources = {option: context.get_parameter_source(name) for name, option in _NOT_FOR_ALL.items()}
    typed = {
        option for option, source in sources.items() if source is not None and source.name == "COMMANDLINE"
    }
    return replace(
        above,
        run=given["run_"] or above.run,
        db=given["db_"] or above.db,
        config=given["config_"] or above.config,
        settings=(*above.settings, *(given["set_"] or ())),
        profile=given["profile_"] or above.profile,
        quiet=given["quiet_"] or above.quiet,
        verbose=given["verbose_"] or above.verbose,
        color=above.color and not given["no_color_"],
        pager=above.pager and not given["no_pager_"],
        json=json or format == "json",
        format=format,
        output=output,
        written=above.written | typed,
    )


def _parameters(extra: dict[str, tuple[Any, Any]]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in extra.items()
    ]


def _with_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    parameters = [context, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters)]
    function.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]  (where inspect looks)
    function.__annotations__ = {p.name: p.annotation for p in parameters}


SCHEMAS: dict[str, tuple[str, Callable[[], Any]]] = {}
"""By command path ("memory why"): the name of its JSON and the type of its `data`, filled by `command`."""


def command(
    app: typer.Typer,
    name: str,
    *,
    example: str,
    group: str | None = None,
    rows: bool = False,
    pages: bool = False,
    reads: Sequence[str] = (),
    without: Sequence[str] = (),
    schema: str | None = None,
    data: Callable[[], Any] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register `function(call, …)` as a command with the common options.

    `example` ends the help, one command a line. `rows` adds `--format` and `-o`. `pages`: what it
    prints is finished when it ends, and may be shown by a pager. `reads` are those of
    `CONFIGURATION` that mean something to it; the others are refused, and so is what is in `without`: `--run`
    where the command is about no run, `--db` where it opens no database. `schema` names the JSON it
    prints (default `diagevo.GROUP.NAME/1`) and `data` returns the Python type of its `data`, for `diagevo
    schema`; it is a callable so that nothing heavy is imported for `--help`.
    """
    path = f"{group} {name}" if group else name
    schema = schema or f"diagevo.{path.replace(' ', '.')}/1"
    SCHEMAS[path] = (schema, data or (lambda: None))
    taken = [*reads, *(option for option in ("--run", "--db") if option not in without)]

    def register(function: Callable[..., None]) -> Callable[..., None]:
        extra = BELOW | (_ROWS if rows else {})
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        @functools.wraps(function)
        def run(*, ctx: typer.Context, **given: Any) -> None:
            from .pager import paged

            common = {key: given.pop(key) for key in extra}
            call = replace(_merge(ctx.obj or Call(), common, ctx), schema=schema)
            for option in _NOT_FOR_ALL.values():
                if option in call.written and option not in taken:
                    raise ConfigError(f"{path} does not take {option}", hint=f"see: diagevo {path} --help")
            try:
                with paged(call) if pages and not given.get("follow") else nullcontext():
                    function(call, **given)
            except (DiagEvoError, typer.TyperException, typer.Exit, typer.Abort, OSError):
                raise
            except Exception:  # a bug, unless the log that it read is damaged
                from .damage import refuse_damaged

                refuse_damaged(call.database)
                raise

        del run.__wrapped__  # or inspect would read the signature of the function inside
        _with_signature(run, [*own, *_parameters(extra)])
        common = ", ".join((*taken, _EVERYWHERE))
        epilog = f"With these options of `diagevo --help`, before or after its name: {common}.\n\n"
        epilog += "\b\nExample:\n" + "\n".join(f"  {line.strip()}" for line in example.strip().splitlines())
        app.command(name, epilog=epilog)(run)
        return function

    return register


def accept_common(
    app: typer.Typer, options: dict[str, tuple[Any, Any]] = COMMON, help: str | None = None
) -> None:
    """Let `app` take the common options before the name of a command."""

    def before(*, ctx: typer.Context, **given: Any) -> None:
        ctx.obj = _merge(ctx.obj or Call(), given, ctx)

    before.__doc__ = help
    _with_signature(before, _parameters(options))
    app.callback()(before)
