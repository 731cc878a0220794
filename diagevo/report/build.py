"""The whole report in a folder: the pages of `diagevo view` with the figures and tables, and next to them
every figure with its data and every table in its formats."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.errors import ConfigError, NotFoundError
from diagevo.evaluation.ablation import Plan
from diagevo.memory.history import History, open_history
from diagevo.memory.log.database import Database
from diagevo.report.figure import Entry, Figure, Missing
from diagevo.report.figures import FIGURES, draw
from diagevo.report.files import cells, write_figure, write_table
from diagevo.report.paper_tables import OF_PLANS, ReportTable, RunResult, TableName, results, table
from diagevo.report.report_data import Material, gather
from diagevo.report.run_tables import ROWS, settings_table, time_table
from diagevo.view.page import Cell, Drawn, Grid

if TYPE_CHECKING:
    from diagevo.diagnosis.embedder import Embedder

PAGES = 500
"""Maximum pages of a report: the first page has its figures, and `diagevo view --export` writes all pages."""
SHOWN_ROWS = 200
"""Rows of a figure's data on the page; its CSV file has all."""
Say = Callable[[str], None]


def each_run(url: str, names: Iterable[str], say: Say | None = None) -> Iterator[History]:
    """Runs of a database one after another, each once and closed afterwards; an empty name means the latest
    run. A missing one is reported to `say`. Raises NotFoundError if there is none.
    """
    for name in dict.fromkeys(names):
        try:
            history = open_history(url, name or None)
        except NotFoundError:
            if say is None:
                raise
            say(f"{name} has not begun")
            continue
        try:
            yield history
        finally:
            history.close()


def tables_of(
    url: str, materials: Sequence[Material], plan: Plan | None, say: Say
) -> dict[TableName, ReportTable]:
    """The tables with measurements: the main one, the time table, and a plan's."""
    found: dict[TableName, ReportTable] = {}
    with suppress(NotFoundError):
        found["time"] = time_table(materials[0])
    runs = [material.run_id for material in materials]
    measured: dict[TableName, tuple[list[RunResult], str | None]] = {"main": _results(url, runs, None, say)}
    if plan is not None:
        of_plan = _results(url, [planned.run for planned in plan.runs], plan, say)
        measured |= dict.fromkeys(OF_PLANS, of_plan)
    for name, (outcomes, world) in measured.items():
        with suppress(NotFoundError):
            found[name] = table(name, outcomes, world)
    return found


def named_table(name: TableName, url: str, runs: Sequence[str], plan: Plan | None, say: Say) -> ReportTable:
    """A table of these runs. Raises NotFoundError if nothing in it was measured."""
    if (name == "time" or name in ROWS) and len(runs) > 1:
        raise ConfigError(f"the table {name} is of one run", hint=f"name it: --run {runs[0]}")
    if name == "time":
        [material] = map(gather, each_run(url, runs))
        return time_table(material)
    if name in ROWS:
        [content] = [settings_table(name, history) for history in each_run(url, runs)]
        return content
    found, world = _results(url, runs, plan, say)
    return table(name, found, world)


def _results(
    url: str, runs: Sequence[str], plan: Plan | None, say: Say
) -> tuple[list[RunResult], str | None]:
    """The results of the runs, and the world of any of them."""
    found: list[RunResult] = []
    world = None
    for history in each_run(url, runs, None if plan is None else say):
        found += results(history, plan)
        world = world or history.world
    return found, world


def build(
    database: Database,
    materials: Sequence[Material],
    folder: Path,
    *,
    tables: Mapping[TableName, ReportTable] | None = None,
    embedder: "Embedder | None" = None,
    pages: int = PAGES,
    on_figure: Callable[[str], None] = lambda name: None,
) -> list[tuple[str, Path]]:
    """Write pages, figures and tables; the files by name, the first page first. The pages are those of
    `materials`' runs; the overview of the first one has the figures, or what is missing for them.

    Raises what `view.export` does.
    """
    from diagevo.view.export import export  # with jinja2, which a list of what could be drawn does not need

    tables = tables or {}
    figures = {entry: draw(entry.name, materials, embedder) for entry in FIGURES}
    drawn = [_figure(entry, result) for entry, result in figures.items()]
    drawn += [
        Drawn(
            f"table-{name}",
            content.title,
            content.note,
            [[(text, place > 0) for place, text in enumerate(row)] for row in cells(content)],
        )
        for name, content in tables.items()
    ]
    runs = [material.run_id for material in materials]
    export(database, folder, runs=runs, most=pages, drawn=drawn)
    written = [("page", folder / "index.html")]
    for entry, result in figures.items():
        if isinstance(result, Figure):
            on_figure(entry.name)
            written += [(entry.name, file) for file in write_figure(folder / "figures", entry.name, result)]
    for name, content in tables.items():
        written += [(f"table-{name}", file) for file in write_table(folder / "tables", name, content)]
    return written


def _figure(entry: Entry, result: Figure | Missing) -> Drawn:
    if isinstance(result, Missing):
        return Drawn(entry.name, entry.title, missing=result.reason, command=result.command)
    rows = result.rows[:SHOWN_ROWS]
    picture = f"figures/{entry.name}"
    return Drawn(entry.name, entry.title, result.caption, _grid(rows), len(result.rows), picture)


def _grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Rows with every column that any of them has; a heading is aligned like its first cell."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    first = rows[0] if rows else {}
    return [
        [(name, isinstance(first.get(name), int | float)) for name in names],
        *([_cell(row.get(name)) for name in names] for row in rows),
    ]


def _cell(value: Any) -> Cell:
    shown = f"{value:.4g}" if isinstance(value, float) else "–" if value is None else str(value)
    return shown, isinstance(value, int | float)
