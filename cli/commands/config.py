"""`diagevo config`: the resolved values, where each came from, and what deviates from the paper."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError

from .. import options
from ..call import CommandContext
from ..opening import opened
from ..render.console import dump
from ..render.result import Result
from ..render.table import columns

if TYPE_CHECKING:
    from diagevo.config.loading import Resolved


def _text(value: Any) -> str:
    """A value as it appears in the configuration's YAML."""
    from diagevo.config.writing import scalar

    return scalar(value)


SETTINGS = columns("key, value, source", value=_text)
DEVIATIONS = columns(
    "key, value, paper: paper or decision, stated: stated in, source", value=_text, paper=_text
)
DIFFERENCES = columns("key, a, b", a=_text, b=_text)


@options.command(
    "config show",
    reads=options.CONFIGURATION,
    rows=True,
    example="""diagevo config show
    diagevo config show --profile embedded --paper
    diagevo config show --check -c mine.yaml --set filter.tau=2
    diagevo config show --schema -o diagevo.schema.json
    diagevo config show --run embedded-1 --format json""",
)
def show(
    call: CommandContext,
    *,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            help="Show only deviations from the paper, with the paper's value. Settings outside the method"
            " (paths, speed, budgets) are left out.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only check that `train` would accept it; if not, exit 2 with the key and line."
        ),
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="The JSON Schema of a configuration file, for editors.")
    ] = False,
) -> Result[Any]:
    """Show every configuration value and where it came from.

    With --run, the configuration recorded in the log of that run."""
    if sum((paper, check, schema)) > 1:
        raise ConfigError("use only one of --paper, --check and --schema", hint="give one at a time")
    if schema:
        return _schema()
    if check:
        return _check(call)
    given = [option for option in options.CONFIGURATION if option in call.typed]
    if given and "--run" in call.typed:
        raise ConfigError(
            f"--run shows the configuration in the run's log; {given[0]} has no effect on it",
            hint="leave one of the two out",
        )
    resolved = of(call, call.run) if call.run is not None and not given else call.resolve()
    if paper:
        return _show_paper(call, resolved)
    rows = [asdict(setting) | {"source": setting.source.where} for setting in resolved.settings()]
    return Result(rows, SETTINGS, run=call.run)


def _show_paper(call: CommandContext, resolved: "Resolved") -> Result[Any]:
    from diagevo.config.paper import SOURCES, deviations

    rows = [asdict(found) | {"source": found.source.where} for found in deviations(resolved)]
    none = f"profile {resolved.config.profile}: nothing deviates from the paper"
    notes = [*SOURCES.get(resolved.config.method, ()), *([] if rows else [none])]
    return Result(rows, DEVIATIONS, run=call.run, notes=notes)


def _check(call: CommandContext) -> Result[Any]:
    resolved = call.resolve()
    places = dict.fromkeys(
        s.where.partition(",")[0] for s in resolved.sources.values() if s.kind != "default"
    )
    data = {"ok": True, "profile": resolved.config.profile, "read": list(places)}
    return Result(data, text=f"ok: profile {resolved.config.profile}; read from {', '.join(places)}")


def _schema() -> Result[None]:
    from diagevo.config.models import Config

    return Result(None, text=dump(Config.model_json_schema()))


@options.command(
    "config diff",
    reads=options.CONFIGURATION,
    rows=True,
    example="""diagevo config diff embedded qwen3-8b
    diagevo config diff run:embedded-1 diagevo.yaml""",
)
def diff(
    call: CommandContext,
    a: Annotated[str, typer.Argument(metavar="A", help="A profile, a file, or run:ID.")],
    b: Annotated[
        str | None, typer.Argument(metavar="[B]", help="Like A; the current configuration if omitted.")
    ] = None,
    *,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 1 if they differ.")] = False,
) -> Result[Any]:
    """Show where two configurations differ."""
    first = of(call, a)
    second = call.resolve() if b is None else of(call, b)
    rows = [
        {"key": x.key, "a": x.value, "b": y.value}
        for x, y in zip(first.settings(), second.settings(), strict=True)
        if x.value != y.value
    ]
    notes = [] if rows else ["they are the same"]
    return Result(rows, DIFFERENCES, notes=notes, exit_code=1 if rows and exit_code else 0)


def of(call: CommandContext, name: str) -> "Resolved":
    """The configuration that `name` refers to: a profile, a file, or a run (`run:ID`, or the ID after
    --run)."""
    from diagevo.config.loading import of_file, of_profile, of_run
    from diagevo.config.shipped import PROFILES

    if name in PROFILES:
        return of_profile(name)
    if name.startswith("run:") or name == call.run:
        with opened(call, name.removeprefix("run:")) as history:
            return of_run(history.configuration().config, history.run_id)
    if not Path(name).exists():
        raise ConfigError(
            f"{name} is neither a profile nor a file",
            hint=f"profiles: {', '.join(PROFILES)}; a run is written run:ID",
        )
    return of_file(Path(name))
