"""`diagevo report`: the figures of a run, alone or as one offline page."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from diagevo.errors import NotFoundError

from . import options, render
from .options import Call
from .render import Column

if TYPE_CHECKING:
    from diagevo.diagnosis.embedder import Embedder
    from diagevo.memory.history import History
    from diagevo.report.material import Material

app = options.group("report", "The figures of a run, alone or as one offline page.")

FIGURES = (
    Column("name"),
    Column("title"),
    Column("ready"),
    Column("missing"),
    Column("command", "supplied by"),
)
FILES = (Column("figure"), Column("file"))
TableName = Literal["main", "ablation", "fixed", "k", "tau"]
TableFormat = Literal["md", "csv", "latex"]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="RUN", help="Another run beside it, where figures compare."),
]
Embed = Annotated[
    bool, typer.Option("--embed", help="Embed the questions with the run's embedding model (it is asked).")
]
Folder = Annotated[Path | None, typer.Option("--to", metavar="DIR", help="Folder to write into.")]


@contextmanager
def _gathered(call: Call, beside: list[str]) -> Iterator[tuple["History", list["Material"]]]:
    from diagevo.memory.history import open_history
    from diagevo.report.material import gather

    history = open_history(call.database, call.run)
    try:
        materials = [gather(history)]
        for run in beside:
            other = open_history(call.database, run)
            try:
                materials.append(gather(other))
            finally:
                other.close()
        yield history, materials
    finally:
        history.close()


def _folder(history: "History", folder: Path | None) -> Path:
    from diagevo.memory.opening import runs_folder

    return folder or runs_folder(history.database) / history.run_id / "report"


def _embedder(material: "Material", asked: bool) -> "Embedder | None":
    if not asked:
        return None
    from diagevo.config import Config
    from diagevo.diagnosis.embedder import embedder_for

    return embedder_for(Config.model_validate(material.config).roles.embedder)


@options.command(
    app,
    "list",
    group="report",
    rows=True,
    example="diagevo report list --run a",
)
def list_(call: Call) -> None:
    """Which figures are ready, and which command supplies what the others lack."""
    from diagevo.report.figure import Missing
    from diagevo.report.figures import FIGURES as ENTRIES
    from diagevo.report.figures import draw

    with _gathered(call, []) as (history, materials):
        lines = []
        for entry in ENTRIES:
            result = draw(entry.name, materials)
            missing = result if isinstance(result, Missing) else None
            lines.append(
                {
                    "name": entry.name,
                    "title": entry.title,
                    "ready": missing is None,
                    "missing": missing.reason if missing else None,
                    "command": missing.command if missing else None,
                }
            )
        render.rows(call, FIGURES, lines, run=history.run_id)


@options.command(
    app,
    "build",
    group="report",
    rows=True,
    example="""diagevo report build --run a
    diagevo report build --run a --with free-only --to report""",
)
def build(call: Call, beside: With = None, to: Folder = None, embed: Embed = False) -> None:
    """Write index.html, which opens from disk, and every figure as SVG, PNG and data."""
    from diagevo.report.build import build as build_

    with _gathered(call, beside or []) as (history, materials):
        folder = _folder(history, to)
        written = build_(
            materials,
            folder,
            embedder=_embedder(materials[0], embed),
            on_figure=lambda name: render.say(call, f"  {name}"),
        )
        size = (folder / "index.html").stat().st_size
        render.say(call, f"open {folder / 'index.html'} ({size / 1e6:.1f} MB)")
        render.rows(
            call, FILES, [{"figure": name, "file": file} for name, file in written], run=history.run_id
        )


@options.command(
    app,
    "fig",
    group="report",
    rows=True,
    example="""diagevo report fig memory --run a
    diagevo report fig performance --run a --with free-only --to figures""",
)
def fig(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A figure of `report list`.")],
    beside: With = None,
    to: Folder = None,
    embed: Embed = False,
) -> None:
    """Write one figure as SVG and PNG, with its data, specification and caption beside it."""
    from diagevo.report.figure import Missing
    from diagevo.report.figures import draw
    from diagevo.report.page import write_figure

    with _gathered(call, beside or []) as (history, materials):
        result = draw(name, materials, _embedder(materials[0], embed))
        if isinstance(result, Missing):
            raise NotFoundError(f"figure {name}: {result.reason}", hint=f"run: {result.command}")
        written = write_figure(_folder(history, to) / "figures", name, result)
        render.rows(call, FILES, [{"figure": name, "file": file} for file in written], run=history.run_id)


@options.command(
    app,
    "table",
    group="report",
    example="""diagevo report table ablation --plan small
    diagevo report table main --runs a,b,c --as latex --to main.tex""",
)
def table(
    call: Call,
    name: Annotated[TableName, typer.Argument(metavar="NAME", help="main, ablation, fixed, k or tau.")],
    plan: Annotated[
        str | None, typer.Option("--plan", help="The ablation plan whose runs are tabled.")
    ] = None,
    runs: Annotated[str | None, typer.Option("--runs", help="Runs with commas between them.")] = None,
    how: Annotated[TableFormat, typer.Option("--as", help="md, csv or latex.")] = "md",
    output: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Write to a file.")] = None,
) -> None:
    """A table of the paper from recorded runs: mean ± standard deviation over runs."""
    from diagevo.evaluation.ablation import load_plan
    from diagevo.memory.history import open_history
    from diagevo.report import tables

    planned = load_plan(call.home, plan) if name != "main" or plan is not None else None
    names = (
        runs.split(",")
        if runs is not None
        else [r.run for r in planned.runs]
        if planned
        else [call.run or ""]
    )
    outcomes, worlds = [], set()
    for run in names:
        try:
            history = open_history(call.database, run or None)
        except NotFoundError:
            render.say(call, f"{run} has not begun")
            continue
        try:
            found = tables.outcome(history, planned)
            worlds.add(history.configuration().config.get("world"))
        finally:
            history.close()
        if found is not None:
            outcomes.append(found)
    content = tables.table(name, outcomes, next((w for w in worlds if w), None))
    text = tables.rendered(content, how)
    if output is not None:
        output.write_text(text, encoding="utf-8")
        text = f"written: {output}\n"
    render.document(call, {"table": content, "runs": outcomes}, text)
