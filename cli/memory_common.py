"""What the commands of `diagevo memory` share: the group, the options that say where and when, the open
run."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from diagevo.errors import ConfigError

from . import options
from .options import Call

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.memory.history import AsOf, History

app = options.group("memory", "Read the log, rebuild the memory, and ask it why.")

Round = Annotated[
    int | None, typer.Option("--round", metavar="N", min=1, help="As of the commit of round N.")
]
At = Annotated[
    int | None,
    typer.Option("--at", metavar="POSITION", min=1, help="As of this position of the log, exactly."),
]
Ref = Annotated[
    str,
    typer.Argument(
        metavar="REF", help="c42, n7, r3.q318, r3.q318.a5, or an unambiguous piece of a description."
    ),
]
OptionalRef = Annotated[
    str | None,
    typer.Argument(
        metavar="[REF]", help="c42, n7, r3.q318, r3.q318.a5, or an unambiguous piece of a description."
    ),
]


@contextmanager
def opened(call: Call) -> Iterator["History"]:
    """The run that the options name, for reading."""
    from diagevo.memory.history import open_history

    history = open_history(call.database, call.run)
    try:
        yield history
    finally:
        history.close()


def where(as_of: "AsOf") -> tuple[int, int]:
    return as_of.round, as_of.position


def theta_dup(history: "History") -> float:
    """The threshold of the run, for the screens."""
    return float(history.configuration().config.get("memory", {}).get("theta_dup", 0.5))


def config_of(call: Call, history: "History") -> "Config":
    """The run's own configuration with what `--set` changes, or the one that `-c` or `--profile` names."""
    from pydantic import ValidationError

    from diagevo.config.models import Config
    from diagevo.config.sources import from_settings

    if call.config is not None or call.profile is not None:
        return call.load_config()
    values = copy.deepcopy(history.configuration().config)
    for path, value in from_settings(call.settings).values.items():
        inner = values
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in found["loc"])
        raise ConfigError(
            f"run {history.run_id} has no configuration of this version: {where}: {found['msg']}",
            hint="name one: -c FILE or --profile NAME",
        ) from error
