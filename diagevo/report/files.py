"""A figure as files: the picture, its data, its specification and its caption. And a table in its formats."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diagevo.errors import extra
from diagevo.report.figure import Figure
from diagevo.report.style import altair, themed
from diagevo.report.table_text import FORMATS
from diagevo.report.tables import ReportTable
from diagevo.text.escaping import csv_text, json_text, visible

VEGA_LITE = "6.4"


def converter() -> Any:
    """vl-convert, of the extra `report`."""
    with extra("report", "a picture"):
        import vl_convert
    return vl_convert


def need_the_extra() -> None:
    """Before the work: raises MissingDependencyError where no figure could be drawn or written."""
    altair()
    converter()


def svg(specification: dict[str, Any]) -> str:
    return converter().vegalite_to_svg(specification, vl_version=VEGA_LITE)


def png(picture: str, scale: float = 2.0) -> bytes:
    return converter().svg_to_png(picture, scale=scale)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with every column that any of them has, in order of first appearance."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: csv_text(v) if isinstance(v, str) else v for k, v in row.items()})
    return buffer.getvalue()


def write_figure(folder: Path, name: str, figure: Figure) -> list[Path]:
    """NAME.svg, .png, .csv (the data), .vl.json (the specification) and .txt (the caption)."""
    folder.mkdir(parents=True, exist_ok=True)
    specification = themed(figure.chart())
    picture = svg(specification)
    files: dict[str, str | bytes] = {
        "svg": picture,
        "png": png(picture),
        "csv": as_csv(figure.rows),
        "vl.json": json_text(specification),
        "txt": visible(figure.caption) + "\n",
    }
    written = []
    for suffix, content in files.items():
        path = folder / f"{name}.{suffix}"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8")
        written.append(path)
    return written


def write_table(folder: Path, name: str, content: ReportTable) -> list[Path]:
    """NAME.md and .csv."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, text in FORMATS.items():
        path = folder / f"{name}.{suffix}"
        path.write_text(text(content), encoding="utf-8")
        written.append(path)
    return written
