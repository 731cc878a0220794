"""The whole report in a folder: the page, and every figure with its data beside it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from diagevo.diagnosis.embedder import Embedder
from diagevo.report.figure import Figure
from diagevo.report.figures import FIGURES, draw
from diagevo.report.material import Material
from diagevo.report.page import Drawn, page, write_figure


def build(
    materials: Sequence[Material],
    folder: Path,
    *,
    embedder: Embedder | None = None,
    on_figure: Callable[[str], None] = lambda name: None,
) -> list[tuple[str, Path]]:
    """Write `folder`/index.html and `folder`/figures; the files by figure. The page says what is missing."""
    drawn = [Drawn(entry, draw(entry.name, materials, embedder)) for entry in FIGURES]
    written: list[tuple[str, Path]] = []
    for each in drawn:
        if isinstance(each.result, Figure):
            on_figure(each.entry.name)
            files = write_figure(folder / "figures", each.entry.name, each.result)
            written += [(each.entry.name, file) for file in files]
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / "index.html"
    index.write_text(page(materials[0], drawn, {}), encoding="utf-8")
    return [("page", index), *written]
