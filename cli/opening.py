"""How a command opens a database or a run, and the options that select the run and the point in its log."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from diagevo.errors import ConfigError, DamagedError, DiagEvoError

from .call import CommandContext

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.memory.history import History
    from diagevo.memory.log.database import Database

Round = Annotated[
    int | None, typer.Option("--round", metavar="N", min=1, help="As of the commit of round N.")
]
At = Annotated[
    int | None,
    typer.Option("--at", metavar="POSITION", min=1, help="As of this position of the log, exactly."),
]
Run = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="The run; the latest if omitted."),
]
_REF = typer.Argument(
    metavar="REF",
    help="c42, n7, r3.q318, r3.q318.a5, or an unambiguous part of a description.",
)
Ref = Annotated[str, _REF]
OptionalRef = Annotated[str | None, _REF]


@contextmanager
def database(call: CommandContext, *, create: bool = False) -> Iterator["Database"]:
    """The database that the options name, at this version's revision."""
    from diagevo.memory.log.database import Database
    from diagevo.memory.log.migrate import prepare

    found = Database(call.database)
    try:
        prepare(found, create=create)
        yield found
    finally:
        found.close()


@contextmanager
def opened(call: CommandContext, run: str | None = None) -> Iterator["History"]:
    """Opens a run for reading: `run`, or the one that the options name."""
    from diagevo.memory.history import open_history

    history = open_history(call.database, call.run if run is None else run)
    try:
        yield history
    finally:
        history.close()


def one(call: CommandContext, *given: str | None) -> str | None:
    """The run that an argument names. Raises ConfigError if --run gives another name."""
    named = [run for run in given if run is not None]
    if named and "--run" in call.typed and named != [call.run]:
        raise ConfigError(
            f"{' and '.join(named)} and --run {call.run} were given", hint="name the run only once"
        )
    return named[0] if named else None


def point_named(text: str) -> tuple[str | None, int | None]:
    """A point `a@3`: a run and a committed round. A run alone has no round; a round alone, no run."""
    if text.isdecimal():
        return None, int(text)
    name, at, round_ = text.rpartition("@")
    return (name, int(round_)) if at and round_.isdecimal() else (text, None)


def config_of(call: CommandContext, history: "History") -> "Config":
    """The run's own configuration with what `--set` changes, or the one that `-c` or `--profile` names."""
    from diagevo.config.loading import apply_overrides, put_method, refuse_unused_model
    from diagevo.config.sources import from_settings

    if call.config is not None or call.profile is not None:
        return call.load_config()
    given = from_settings(call.settings)
    stored = call.config_in_log(history, history.configuration().config)
    put_method([given], stored.get("world"))
    config = apply_overrides(stored, given, history.run_id)
    refuse_unused_model(config, [given])
    return config


def stored_config(history: "History") -> "Config":
    """The configuration that a run has in its log. Raises ConfigError if `train` did not write it."""
    from diagevo.config.loading import of_run

    return of_run(history.configuration().config, history.run_id).config


def there_is_none(call: CommandContext) -> bool:
    """Whether the options name a file that does not exist yet, so that nothing was recorded in it."""
    from diagevo.memory.log.database import Database

    file = Database(call.database).file
    return file is not None and not file.exists()


def refuse_damaged(location: str) -> None:
    """Raises DamagedError if a run is not as it was written. Called after an unexpected error."""
    from diagevo.memory.audit.verify import verify
    from diagevo.memory.log.database import Database
    from diagevo.memory.log.log import Log
    from diagevo.memory.log.migrate import prepare
    from diagevo.memory.places import runs_folder

    try:
        database = Database(location)
        try:
            prepare(database, create=False)
            log = Log(database)
            for run_id in log.runs():
                report = verify(log, run_id, runs_folder(database) / run_id, deep=True)
                if not report.ok:
                    raise DamagedError(f"run {run_id} is damaged: {report.faults[0].message}")
        finally:
            database.close()
    except DamagedError:
        raise
    except DiagEvoError:
        return  # a database that is missing, outdated or unreachable is not the cause
