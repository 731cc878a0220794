"""`diagevo report`: the figures of a run, alone or on the pages of `diagevo view`."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diagevo.errors import NotFoundError

from .. import options
from ..opening import opened
from ..options import Call
from ..render import console as render
from ..render.rows import print_rows
from ..render.table import Column

if TYPE_CHECKING:
    from diagevo.diagnosis.embedder import Embedder
    from diagevo.evaluation.ablation import Plan
    from diagevo.memory.audit.history import History
    from diagevo.report.material import Material
    from diagevo.report.tables import RunResult, Table, TableName

app = options.group("report", "The figures of a run, alone or on its pages.", "list build fig table")

FIGURES = (
    Column("name"),
    Column("title"),
    Column("ready"),
    Column("missing"),
    Column("command", "supplied by"),
)
FILES = (Column("figure"), Column("file"))
TableOf = Literal["main", "ablation", "fixed", "k", "tau"]
PlanName = Annotated[str | None, typer.Option("--plan", help="Take the runs of this ablation plan.")]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="RUN", help="Another run to compare with; may be repeated."),
]
Embed = Annotated[bool, typer.Option("--embed", help="Embed the questions: calls the run's embedding model.")]
Pages = Annotated[
    int | None, typer.Option("--pages", metavar="N", min=1, help="At most so many. [default: 500]")
]
Folder = Annotated[Path | None, typer.Option("--to", metavar="DIR", help="Folder to write into.")]


@dataclass(frozen=True)
class FigureLine:
    """A figure: whether it can be drawn, else what is missing and the command that supplies it."""

    name: str
    title: str
    ready: bool
    missing: str | None
    command: str | None


@dataclass(frozen=True)
class FileLine:
    figure: str
    file: str


def _figure_lines() -> Any:
    return list[FigureLine]


def _file_lines() -> Any:
    return list[FileLine]


def _tabled() -> Any:
    from diagevo.report.tables import RunResult, Table

    @dataclass(frozen=True)
    class Tabled:
        table: Table
        runs: list[RunResult]

    return Tabled


@contextmanager
def _gathered(call: Call, beside: list[str]) -> Iterator[tuple["History", list["Material"]]]:
    from diagevo.report.material import gather

    with opened(call) as history:
        materials = [gather(history)]
        for run in beside:
            with opened(call, run) as other:
                if all(other.run_id != material.run_id for material in materials):
                    materials.append(gather(other))
        yield history, materials


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
    data=_figure_lines,
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
                FigureLine(
                    entry.name,
                    entry.title,
                    missing is None,
                    missing.reason if missing else None,
                    missing.command if missing else None,
                )
            )
        print_rows(call, FIGURES, lines, run=history.run_id)


@options.command(
    app,
    "build",
    group="report",
    rows=True,
    data=_file_lines,
    example="""diagevo report build --run a
    diagevo report build --run a --with free-only --to report
    diagevo report build --run small.full.s0 --plan small""",
)
def build(
    call: Call,
    *,
    beside: With = None,
    plan: PlanName = None,
    to: Folder = None,
    embed: Embed = False,
    pages: Pages = None,
) -> None:
    """Write the run's pages with the figures and tables on them, and those as files beside the pages."""
    from diagevo.evaluation.ablation import load_plan
    from diagevo.report.build import PAGES
    from diagevo.report.build import build as build_

    planned = None if plan is None else load_plan(call.home, plan)
    with _gathered(call, beside or []) as (history, materials):
        tables = _tables_of(call, [material.run_id for material in materials], planned)
        folder = _folder(history, to)
        with render.writing(folder):
            written = build_(
                history.database,
                materials,
                folder,
                tables=tables,
                embedder=_embedder(materials[0], embed),
                pages=pages or PAGES,
                on_figure=lambda name: render.say(call, f"  {name}"),
            )
        render.say(call, f"open {folder / 'index.html'}")
        print_rows(call, FILES, [FileLine(name, str(file)) for name, file in written], run=history.run_id)


def _tables_of(call: Call, runs: list[str], plan: "Plan | None") -> dict["TableName", "Table"]:
    """The tables that something was measured for: the main one, and a plan's."""
    from diagevo.report.tables import TITLES, table

    found: dict[TableName, Table] = {}
    measured: dict[TableName, tuple[list[RunResult], str | None]] = {"main": _results(call, runs, None)}
    if plan is not None:
        of_plan = _results(call, [planned.run for planned in plan.runs], plan)
        measured |= {name: of_plan for name in TITLES if name != "main"}
    for name, (results, world) in measured.items():
        with suppress(NotFoundError):
            found[name] = table(name, results, world)
    return found


def _results(call: Call, runs: list[str], plan: "Plan | None") -> tuple[list["RunResult"], str | None]:
    """What the runs came to, and the world that any of them was played in."""
    from diagevo.memory.audit.history import open_history
    from diagevo.report import tables

    found: list[RunResult] = []
    world = None
    for run in dict.fromkeys(runs):
        try:
            history = open_history(call.database, run or None)
        except NotFoundError:
            if plan is None:
                raise
            render.say(call, f"{run} has not begun")
            continue
        try:
            found += tables.results(history, plan)
            world = world or history.configuration().config.get("world")
        finally:
            history.close()
    return found, world


@options.command(
    app,
    "fig",
    group="report",
    rows=True,
    data=_file_lines,
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
    from diagevo.report.files import write_figure

    with _gathered(call, beside or []) as (history, materials):
        result = draw(name, materials, _embedder(materials[0], embed))
        if isinstance(result, Missing):
            raise NotFoundError(f"figure {name}: {result.reason}", hint=f"run: {result.command}")
        folder = to or _folder(history, None) / "figures"
        with render.writing(folder):
            written = write_figure(folder, name, result)
        print_rows(call, FILES, [FileLine(name, str(file)) for file in written], run=history.run_id)


_BY_ENDING: dict[str, Literal["md", "csv", "latex"]] = {".csv": "csv", ".tex": "latex"}


@options.command(
    app,
    "table",
    group="report",
    data=_tabled,
    example="""diagevo report table ablation --plan small
    diagevo report table main --runs a,b,c -o main.tex
    diagevo report table k --runs a,b,c""",
)
def table(
    call: Call,
    name: Annotated[TableOf, typer.Argument(metavar="NAME", help="main, ablation, fixed, k or tau.")],
    plan: PlanName = None,
    runs: Annotated[str | None, typer.Option("--runs", help="Runs with commas between them.")] = None,
    how: Annotated[
        Literal["md", "csv", "latex"] | None, typer.Option("--format", help="[default: md]")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to a file; .md, .csv and .tex give its format."
        ),
    ] = None,
) -> None:
    """A table of the paper from recorded runs: mean ± standard deviation over runs."""
    from diagevo.evaluation.ablation import load_plan
    from diagevo.report import tables
    from diagevo.report.table_text import FORMATS

    alone = name == "main" or (runs is not None and name in tables.SWEPT)
    planned = None if alone and plan is None else load_plan(call.home, plan)
    names = runs.split(",") if runs is not None else [r.run for r in planned.runs] if planned else None
    found, world = _results(call, names or [call.run or ""], planned)
    content = tables.table(name, found, world)
    ending = "" if output is None else output.suffix
    text = FORMATS[how or _BY_ENDING.get(ending, "md")](content)
    if output is not None:
        with render.writing(output):
            output.write_text(text, encoding="utf-8")
        text = f"written: {output}\n"
    render.document(call, {"table": content, "runs": found}, text)
