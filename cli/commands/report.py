"""`diagevo report`: a run's figures, alone or on the pages of `diagevo view`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError, NotFoundError

from .. import options
from ..call import CommandContext
from ..opening import one, opened
from ..render import console as render
from ..render.result import Result, Rows
from ..render.table import Column, columns

if TYPE_CHECKING:
    from diagevo.diagnosis.embedder import Embedder
    from diagevo.memory.history import History
    from diagevo.report.paper_tables import ReportTable, TableName
    from diagevo.report.report_data import Material

FILES = columns("figure, file")
TABLE = "table-"
"""Prefix of a table's name; `time` is also a figure."""


@contextmanager
def _gathered(call: CommandContext, beside: list[str]) -> Iterator[tuple["History", list["Material"]]]:
    from diagevo.report.build import each_run
    from diagevo.report.report_data import gather

    with opened(call) as history:
        found = [gather(history), *map(gather, each_run(call.database, beside))]
        yield history, list({material.run_id: material for material in found}.values())


def _embedder(material: "Material", wanted: bool) -> "Embedder | None":
    if not wanted:
        return None
    from diagevo.config.loading import of_run
    from diagevo.diagnosis.embedder import embedder_for

    return embedder_for(of_run(material.config, material.run_id).config.roles.embedder)


@options.command(
    "report build",
    rows=True,
    example="""diagevo report build --run a
    diagevo report build --run a --with free-only --to report
    diagevo report build --only memory --only table-main --run a
    diagevo report build --only table-ablation --plan small
    diagevo report build --only table-k --run a --with b --with c""",
)
def build(
    call: CommandContext,
    *,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this figure or table, without pages; may be repeated. Figures: intro, performance, "
            "memory, labels, case, length, diversity, difficulty, coverage. Tables: table-main, "
            "table-ablation, table-grpo, table-training, table-thresholds, table-time, table-fixed, table-k, "
            "table-tau.",
        ),
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="RUN",
            help="Another run to compare with; may be repeated.",
        ),
    ] = None,
    plan: Annotated[str | None, typer.Option(help="Take the runs of this ablation plan.")] = None,
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder to write into.")] = None,
    embed: Annotated[
        bool, typer.Option("--embed", help="Embed the questions: calls the run's embedding model.")
    ] = False,
) -> Result[Any]:
    """Write a run's pages with its figures and tables.

    Figures and tables are also files beside the pages. A figure comes as SVG and PNG with its data,
    specification and caption; a table, mean ± standard deviation over runs, as Markdown and CSV.
    The page of a figure that cannot be drawn yet shows what is missing and which command supplies it.
    """
    _refuse_unknown(only or ())
    tables = [name.removeprefix(TABLE) for name in only or () if name.startswith(TABLE)]
    if plan is not None and only and not tables:
        raise ConfigError("--plan applies to tables", hint="name one: --only table-ablation")
    if only:
        figures = [name for name in only if not name.startswith(TABLE)]
        made = _wanted(call, tables, beside or [], plan)
        return _build_only(call, figures, made, beside or [], to, embed)
    return _build_pages(call, beside or [], plan, to, embed)


def _refuse_unknown(names: Sequence[str]) -> None:
    """Raises NotFoundError for a name that is neither a figure nor a table."""
    from diagevo.report.figures import FIGURES
    from diagevo.report.paper_tables import TITLES

    known = [*(entry.name for entry in FIGURES), *(TABLE + name for name in TITLES)]
    if unknown := [name for name in names if name not in known]:
        raise NotFoundError(f"no figure or table {unknown[0]!r}", hint="there are: " + ", ".join(known))


def _build_pages(
    call: CommandContext, beside: list[str], plan: str | None, to: Path | None, embed: bool
) -> Result[Any]:
    from diagevo.evaluation.ablation import load_plan
    from diagevo.report.build import build as build_
    from diagevo.report.build import tables_of
    from diagevo.report.files import need_the_extra

    need_the_extra()
    planned = None if plan is None else load_plan(call.home, plan)
    with _gathered(call, beside) as (history, materials):
        tables = tables_of(call.database, materials, planned, lambda text: render.say(call, text))
        folder = to or history.folder / "report"
        with render.writing(folder):
            written = build_(
                history.database,
                materials,
                folder,
                tables=tables,
                embedder=_embedder(materials[0], embed),
                on_figure=lambda name: render.say(call, f"  {name}"),
            )
        lines = [{"figure": name, "file": str(file)} for name, file in written]
        return Result(lines, FILES, run=history.run_id, notes=[f"open {folder / 'index.html'}"])


def _build_only(
    call: CommandContext,
    figures: list[str],
    tables: "dict[TableName, ReportTable]",
    beside: list[str],
    to: Path | None,
    embed: bool,
) -> Result[Any]:
    from diagevo.report.figure import Missing
    from diagevo.report.figures import draw
    from diagevo.report.files import need_the_extra, write_figure, write_table

    if figures:
        need_the_extra()
    lines: list[dict[str, str]] = []
    parts: list[str | Rows] = []
    with _gathered(call, beside) as (history, materials):
        folder = to or history.folder / "report"
        for name in figures:
            result = draw(name, materials, _embedder(materials[0], embed))
            if isinstance(result, Missing):
                hint = f"run: {result.command}" if result.command else None
                raise NotFoundError(f"figure {name}: {result.reason}", hint=hint)
            with render.writing(folder):
                files = write_figure(folder / "figures", name, result)
            lines += [{"figure": name, "file": str(file)} for file in files]
        for of, content in tables.items():
            parts += _drawn(content)
            with render.writing(folder):
                files = write_table(folder / "tables", of, content)
            lines += [{"figure": f"{TABLE}{of}", "file": str(file)} for file in files]
        return Result(lines, FILES, [*parts, Rows(FILES, lines)], run=history.run_id)


def _wanted(
    call: CommandContext, names: list[str], beside: list[str], plan: str | None
) -> "dict[TableName, ReportTable]":
    """The tables of these names, from the run and those it is compared with, or from a plan's."""
    from diagevo.evaluation.ablation import load_plan
    from diagevo.report.build import named_table
    from diagevo.report.paper_tables import OF_PLANS, SWEPT, TITLES

    found: dict[TableName, ReportTable] = {}
    for name in TITLES:
        if not names.count(name):
            continue
        alone = name not in OF_PLANS or (beside and name in SWEPT)
        planned = None if alone and plan is None else load_plan(call.home, plan)
        of = [call.run or "", *beside]
        if planned is not None:
            of = [run.run for run in planned.runs]
            one(call, *of)
        found[name] = named_table(name, call.database, of, planned, lambda text: render.say(call, text))
    return found


def _drawn(content: "ReportTable") -> list[str | Rows]:
    """A table with its title and note, for a person."""
    from diagevo.report.files import cells

    head, *rows = cells(content)
    titles = [Column(str(at), title) for at, title in enumerate(head)]
    shown = Rows(titles, [{str(at): cell for at, cell in enumerate(row)} for row in rows])
    return [f"{content.title}. {content.note}", shown]
