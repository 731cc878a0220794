"""A table as Markdown and CSV, and its text for a page."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence

from diagevo.report.scores import NINE
from diagevo.report.tables import ReportTable
from diagevo.text.escaping import csv_text, markdown_text


def shown(column: str) -> str:
    return NINE[column].title if column in NINE else column


def cells(content: ReportTable) -> list[list[str]]:
    """The heading and the rows as text; beside a value its difference from the full method, where known."""
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


def as_csv(content: ReportTable) -> str:
    """One line a method and column, with full precision."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["method", "column", "mean", "standard_deviation", "runs", "difference_from_full"])
    for label, values in content.rows.items():
        for column, known in values.items():
            difference = content.differences.get(label, {}).get(column)
            figures = (known.mean, known.deviation, known.runs, difference)
            writer.writerow([csv_text(label), shown(column), *figures])
    return buffer.getvalue()


FORMATS: Mapping[str, Callable[[ReportTable], str]] = {"md": markdown, "csv": as_csv}
"""By the end of a file's name."""
