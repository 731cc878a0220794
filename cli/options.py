"""The options that every command takes, before or after its name, and the decorator that adds them."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diagevo.errors import ConfigError, DiagEvoError

if TYPE_CHECKING:
    from diagevo.config.loading import Resolved
    from diagevo.config.models import Config
    from diagevo.config.sources import KeyPath
    from diagevo.memory.audit.history import History

RowFormat = Literal["table", "json", "jsonl", "csv", "parquet", "md"]


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
    json: bool = False
    format: RowFormat = "table"
    output: Path | None = None
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
    str | None, typer.Option("--run", metavar="ID", envvar="DIAGEVO_RUN", help="The run, or `latest`.")
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
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="More on stderr; tracebacks of our bugs.")]
_NoColor = Annotated[bool, typer.Option("--no-color", help="No colours, also on a terminal.")]
_Json = Annotated[bool, typer.Option("--json", help="JSON; its schema: `diagevo schema COMMAND`.")]
_Format = Annotated[
    RowFormat, typer.Option("--format", help="How rows are printed; csv puts ' before a formula.")
]
_Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file instead of stdout.")
]

_COMMON: dict[str, tuple[Any, Any]] = {
    "run_": (_Run, None),
    "db_": (_Db, None),
    "config_": (_Config, None),
    "set_": (_Set, None),
    "profile_": (_Profile, None),
    "quiet_": (_Quiet, False),
    "verbose_": (_Verbose, False),
    "no_color_": (_NoColor, False),
    "json_": (_Json, False),
}
_ROWS: dict[str, tuple[Any, Any]] = {"format_": (_Format, "table"), "output_": (_Output, None)}


def _merge(above: Call, given: dict[str, Any]) -> Call:
    """The call as it stands after the options given at one more level; the nearest to the command wins."""
    for name in ("run", "db", "profile"):
        if given[f"{name}_"] == "":
            raise ConfigError(f"--{name} is empty", hint="give it a value, or leave it out")
    asked = given.get("format_", "table")
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
        json=given["json_"] or above.json or asked == "json",
        format="json" if (given["json_"] or above.json) and asked == "table" else asked,
        output=given.get("output_", above.output),
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
    schema: str | None = None,
    data: Callable[[], Any] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register `function(call, …)` as a command with the common options.

    `example` ends the help, one command a line. `rows` adds `--format` and `-o`. `schema` names the JSON it
    prints (default `diagevo.GROUP.NAME/1`) and `data` returns the Python type of its `data`, for `diagevo
    schema`; it is a callable so that nothing heavy is imported for `--help`.
    """
    path = f"{group} {name}" if group else name
    schema = schema or f"diagevo.{path.replace(' ', '.')}/1"
    SCHEMAS[path] = (schema, data or (lambda: None))

    def register(function: Callable[..., None]) -> Callable[..., None]:
        extra = _COMMON | (_ROWS if rows else {})
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]

        @functools.wraps(function)
        def run(*, ctx: typer.Context, **given: Any) -> None:
            common = {key: given.pop(key) for key in extra}
            call = replace(_merge(ctx.obj or Call(), common), schema=schema)
            try:
                function(call, **given)
            except (DiagEvoError, typer.TyperException, typer.Exit, typer.Abort, OSError):
                raise
            except Exception:  # a bug, unless the log that it read is damaged
                from .damage import refuse_damaged

                refuse_damaged(call.database)
                raise

        del run.__wrapped__  # or inspect would read the signature of the function inside
        _with_signature(run, [*own, *_parameters(extra)])
        epilog = "\b\nExample:\n" + "\n".join(f"  {line.strip()}" for line in example.strip().splitlines())
        app.command(name, epilog=epilog)(run)
        return function

    return register


def group(name: str, help: str) -> typer.Typer:
    """A group of commands that takes the common options before the command's name."""
    app = typer.Typer(name=name, help=help, no_args_is_help=True, rich_markup_mode=None)
    accept_common(app)
    return app


def accept_common(
    app: typer.Typer, more: dict[str, tuple[Any, Any]] | None = None, help: str | None = None
) -> None:
    """Let `app` take the common options (and `more`) before the name of a command."""

    def before(*, ctx: typer.Context, **given: Any) -> None:
        ctx.obj = _merge(ctx.obj or Call(), given)

    before.__doc__ = help
    _with_signature(before, _parameters(_COMMON | (more or {})))
    app.callback()(before)
