"""The whole report in a folder: the pages of `diagevo view` with the figures and tables on them, and beside
them every figure with its data and every table in its formats."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.memory.log.database import Database
from diagevo.report.causes import SHOWN_REACTIVATIONS
from diagevo.report.figure import Entry, Figure, Missing
from diagevo.report.figures import FIGURES, draw
from diagevo.report.files import write_figure, write_table
from diagevo.report.material import Material
from diagevo.report.table_text import cells
from diagevo.report.tables import ReportTable, TableName
from diagevo.view.export import export
from diagevo.view.page import Cell, Drawn, Grid

if TYPE_CHECKING:
    from diagevo.diagnosis.embedder import Embedder

PAGES = 500
"""Pages of a report, unless another number is asked for."""
SHOWN_ROWS = 200
"""Of a figure's data on the page; its CSV file has all."""
EVIDENCE: Mapping[str, str] = {
    "cause_id": "cause",
    "description": "description",
    "promoted": "promoted in",
    "consistency_exact": "mean p₁",
    "promotion_questions": "questions",
    "reactivated": "reactivated in",
    "failure_id": "by failure",
    "via": "via",
    "similarity": "cosine",
    "f_after": "f after",
}
"""The rows of `reactivations` are evidence in their own right: these columns are shown, so headed."""


def build(
    database: Database,
    materials: Sequence[Material],
    folder: Path,
    *,
    tables: Mapping[TableName, ReportTable] | None = None,
    embedder: "Embedder | None" = None,
    arms: Sequence[Material] = (),
    pages: int = PAGES,
    on_figure: Callable[[str], None] = lambda name: None,
) -> list[tuple[str, Path]]:
    """Write pages, figures and tables; the files by name, the first page first. The pages are those of
    `materials`' runs; the overview of the first one has the figures, or what they lack. `arms`: the runs of a
    plan, for the figure of its variants.

    Raises what `view.export` does.
    """
    tables = tables or {}
    figures = {entry: draw(entry.name, materials, embedder, arms) for entry in FIGURES}
    drawn = [_figure(entry, result) for entry, result in figures.items()]
    drawn += [
        Drawn(f"table-{name}", content.title, content.note, _table(content))
        for name, content in tables.items()
    ]
    runs = [material.run_id for material in materials]
    export(database, None, folder, runs=runs, most=pages, drawn=drawn)
    written = [("page", folder / "index.html")]
    for entry, result in figures.items():
        if isinstance(result, Figure):
            on_figure(entry.name)
            written += [(entry.name, file) for file in write_figure(folder / "figures", entry.name, result)]
    for name, content in tables.items():
        written += [(f"table-{name}", file) for file in write_table(folder / "tables", name, content)]
    return written


def _figure(entry: Entry, result: Figure | Missing) -> Drawn:
    """A figure as its page takes it."""
    if isinstance(result, Missing):
        return Drawn(entry.name, entry.title, missing=result.reason, command=result.command)
    rows = result.rows[:SHOWN_ROWS]
    if entry.name == "reactivations":
        rows = [{title: row[key] for key, title in EVIDENCE.items()} for row in rows[:SHOWN_REACTIVATIONS]]
    picture = f"figures/{entry.name}"
    return Drawn(entry.name, entry.title, result.caption, _grid(rows), len(result.rows), picture)


def _table(content: ReportTable) -> Grid:
    """A paper's table; its text is the one of its other formats."""
    return [[(text, place > 0) for place, text in enumerate(row)] for row in cells(content)]


def _grid(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Rows with every column that any of them has; a column is headed as its first cell is set."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    first = rows[0] if rows else {}
    return [
        [(name, isinstance(first.get(name), int | float)) for name in names],
        *([_cell(row.get(name)) for name in names] for row in rows),
    ]


def _cell(value: Any) -> Cell:
    shown = f"{value:.4g}" if isinstance(value, float) else "–" if value is None else str(value)
    return shown, isinstance(value, int | float)
