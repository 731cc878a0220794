"""`diagevo config`: the resolved values, where each came from, and what deviates from the paper."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError

from .. import options
from ..call import Call
from ..opening import opened
from ..render import console as render
from ..render.rows import print_rows
from ..render.table import Column

if TYPE_CHECKING:
    from diagevo.config.loading import Resolved

SETTINGS = (Column("key"), Column("value"), Column("source"))
DEVIATIONS = (
    Column("key"),
    Column("value"),
    Column("paper", "paper or decision"),
    Column("stated", "stated in"),
    Column("source"),
)
DIFFERENCES = (Column("key"), Column("a"), Column("b"))


def _text(value: Any) -> str:
    """A value as the configuration's YAML writes it."""
    from diagevo.config.writing import scalar

    return scalar(value)


@dataclass(frozen=True, slots=True)
class Shown:
    """A value of the configuration, as `config show` prints it."""

    key: str
    value: Any
    source: str
    """Where it was written: a file with its line, a variable, an option, a profile, or `default`."""
    description: str


@options.command(
    "config show",
    reads=options.CONFIGURATION,
    rows=True,
    pages=True,
    example="""diagevo config show
    diagevo config show --profile embedded --paper
    diagevo config show --check -c mine.yaml --set filter.tau=2
    diagevo config show --schema -o diagevo.schema.json
    diagevo config show --run embedded-1 --format json""",
)
def show(
    call: Call,
    *,
    paper: Annotated[
        bool, typer.Option("--paper", help="Only what deviates from the paper, with the paper's value.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only say whether `train` would take it; exit 2 with the key and line."),
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="The JSON Schema of a configuration file, for editors.")
    ] = False,
) -> None:
    """Every value with where it came from; with --run, the configuration that the run has in its log."""
    if sum((paper, check, schema)) > 1:
        raise ConfigError("--paper, --check and --schema are three questions", hint="ask one at a time")
    if schema:
        return _schema(call)
    if check:
        return _check(call)
    given = [option for option in options.CONFIGURATION if option in call.typed]
    if given and "--run" in call.typed:
        raise ConfigError(
            f"--run shows what a run has in its log, and {given[0]} changes nothing in it",
            hint="leave one of the two out",
        )
    resolved = of(call, call.run) if call.run is not None and not given else call.resolve()
    if paper:
        return _show_paper(call, resolved)
    shown = [Shown(s.key, s.value, s.source.where, s.description) for s in resolved.settings()]
    rows = [asdict(setting) for setting in shown]
    if call.format in ("table", "md"):
        rows = [row | {"value": _text(row["value"])} for row in rows]
    print_rows(call, SETTINGS, rows, run=call.run)
    return None


def _show_paper(call: Call, resolved: "Resolved") -> None:
    from diagevo.config.paper import deviations

    found = deviations(resolved)
    rows = [
        {
            "key": d.key,
            "value": d.value,
            "paper": d.paper,
            "kind": d.kind,
            "stated": d.stated,
            "source": d.source.where,
        }
        for d in found
    ]
    if call.format in ("table", "md"):
        rows = [row | {"value": _text(row["value"]), "paper": _text(row["paper"])} for row in rows]
        if not rows:
            render.say(call, f"profile {resolved.config.profile}: nothing deviates from the paper")
            return
    print_rows(call, DEVIATIONS, rows, run=call.run)


def _check(call: Call) -> None:
    resolved = call.resolve()
    places = dict.fromkeys(
        s.where.partition(",")[0] for s in resolved.sources.values() if s.kind != "default"
    )
    data = {"ok": True, "profile": resolved.config.profile, "read": list(places)}
    render.document(call, data, f"ok: profile {resolved.config.profile}; read from {', '.join(places)}")


def _schema(call: Call) -> None:
    from diagevo.config.models import Config

    render.text(call, render.dump(Config.model_json_schema()))


@options.command(
    "config diff",
    reads=options.CONFIGURATION,
    rows=True,
    pages=True,
    example="""diagevo config diff embedded qwen3-8b
    diagevo config diff run:embedded-1 diagevo.yaml""",
)
def diff(
    call: Call,
    a: Annotated[str, typer.Argument(metavar="A", help="A profile, a file, or run:ID.")],
    b: Annotated[
        str | None, typer.Argument(metavar="[B]", help="As A; the configuration here and now if left out.")
    ] = None,
    *,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 1 where they differ.")] = False,
) -> None:
    """The values in which two configurations differ."""
    first = of(call, a)
    second = call.resolve() if b is None else of(call, b)
    rows = [
        {"key": x.key, "a": x.value, "b": y.value}
        for x, y in zip(first.settings(), second.settings(), strict=True)
        if x.value != y.value
    ]
    shown = [{k: v if k == "key" else _text(v) for k, v in row.items()} for row in rows]
    if rows or call.format not in ("table", "md"):
        print_rows(call, DIFFERENCES, shown if call.format in ("table", "md") else rows)
    else:
        render.say(call, "they are the same")
    if rows and exit_code:
        raise typer.Exit(1)


def of(call: Call, name: str) -> "Resolved":
    """The configuration that `name` means: a profile, a file, or a run (`run:ID`, or the ID after --run)."""
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
