"""A figure as files: the picture, its data, its specification and its caption. A table as Markdown and
CSV, and its text for a page."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from diagevo.errors import extra
from diagevo.report.figure import Figure, altair, themed
from diagevo.report.paper_tables import NINE, ReportTable
from diagevo.text.escaping import csv_text, json_text, markdown_text, visible


def shown(column: str) -> str:
    return NINE[column].title if column in NINE else column


def cells(content: ReportTable) -> list[list[str]]:
    """The heading and the rows as text; next to a value its difference from the full method, if known."""
    body = [
        [label, *(_with_difference(content, label, column) for column in content.columns)]
        for label in content.rows
    ]
    return [[content.first, *map(shown, content.columns)], *body]


def _with_difference(content: ReportTable, label: str, column: str) -> str:
    known = content.rows[label].get(column)
    if known is None:
        return "–"
    value = content.figure(known.mean)
    value = value if known.deviation is None else f"{value} ± {known.deviation:.1f}"
    difference = content.differences.get(label, {}).get(column)
    return value if difference is None else f"{value} ({difference:+.1f})"


def markdown(content: ReportTable) -> str:
    head, *body = [[markdown_text(text) for text in line] for line in cells(content)]
    lines = [_line(head), "|---" + "|---:" * len(content.columns) + "|", *map(_line, body)]
    return f"**{content.title}.** {markdown_text(content.note)}\n\n" + "\n".join(lines) + "\n"


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def table_csv(content: ReportTable) -> str:
    """One line per method and column, with full precision."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["method", "column", "mean", "standard_deviation", "runs", "difference_from_full"])
    for label, values in content.rows.items():
        for column, known in values.items():
            difference = content.differences.get(label, {}).get(column)
            figures = (known.mean, known.deviation, known.runs, difference)
            writer.writerow([csv_text(label), shown(column), *figures])
    return buffer.getvalue()


FORMATS: Mapping[str, Callable[[ReportTable], str]] = {"md": markdown, "csv": table_csv}
"""By file suffix."""


VEGA_LITE = "6.4"


def converter() -> Any:
    """vl-convert, of the extra `report`."""
    with extra("report", "a picture"):
        import vl_convert
    return vl_convert


def need_the_extra() -> None:
    """Checked first: raises MissingDependencyError if no figure could be drawn or written."""
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
