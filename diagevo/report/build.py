"""The whole report in a folder: the page, every figure with its data, every table in its formats."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from diagevo.diagnosis.embedder import Embedder
from diagevo.report.figure import Figure
from diagevo.report.figures import FIGURES, draw
from diagevo.report.material import Material
from diagevo.report.page import Drawn, page, write_figure
from diagevo.report.table_text import FORMATS
from diagevo.report.tables import Table, TableName

SUFFIXES = {"md": "md", "csv": "csv", "latex": "tex"}


def build(
    materials: Sequence[Material],
    folder: Path,
    *,
    tables: Mapping[TableName, Table] | None = None,
    embedder: Embedder | None = None,
    on_figure: Callable[[str], None] = lambda name: None,
) -> list[tuple[str, Path]]:
    """Write `folder`/index.html, figures and tables; the files by name. The page says what is missing."""
    tables = tables or {}
    drawn = [Drawn(entry, draw(entry.name, materials, embedder)) for entry in FIGURES]
    written: list[tuple[str, Path]] = []
    for each in drawn:
        if isinstance(each.result, Figure):
            on_figure(each.entry.name)
            files = write_figure(folder / "figures", each.entry.name, each.result)
            written += [(each.entry.name, file) for file in files]
    for name, content in tables.items():
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        for how, text in FORMATS.items():
            file = folder / "tables" / f"{name}.{SUFFIXES[how]}"
            file.write_text(text(content), encoding="utf-8")
            written.append((f"table {name}", file))
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "index.html"
    beside = [material.run_id for material in materials[1:]]
    index.write_text(page(materials[0], drawn, tables, beside), encoding="utf-8")
    return [("page", index), *written]
