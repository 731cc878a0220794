"""A table as Markdown, CSV and LaTeX, and its text for a page."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence

from diagevo.report.scores import NINE
from diagevo.report.tables import Cell, ReportTable
from diagevo.text.escaping import csv_text, markdown_text, visible


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


_TEX = {character: f"\\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "τ": r"$\tau$",
    "β": r"$\beta$",
    "λ": r"$\lambda$",
    "θ": r"$\theta$",
    "†": r"$\dagger$",
    "±": r"$\pm$",
    "–": "--",
}


def in_latex(text: str) -> str:
    """Text that LaTeX sets as it is, under pdfLaTeX too."""
    return "".join(_TEX.get(character, character) for character in visible(" ".join(text.split())))


def latex(content: ReportTable) -> str:
    """A booktabs table; the best mean of each column in bold, ties included. A wide one needs graphicx."""
    best = {
        c: max(round(values[c].mean, 1) for values in content.rows.values() if c in values)
        for c in content.columns
        if content.best
    }
    head = " & ".join(in_latex(c) for c in [content.first, *map(shown, content.columns)])
    tabular = [
        rf"\begin{{tabular}}{{l{'c' * len(content.columns)}}}",
        r"\toprule",
        head + r" \\",
        r"\midrule",
    ]
    for label, values in content.rows.items():
        against = content.differences.get(label, {})
        line = [
            in_latex(label),
            *(_in_latex_cell(content, values.get(c), best.get(c), against.get(c)) for c in content.columns),
        ]
        tabular.append(" & ".join(line) + r" \\")
    tabular += [r"\bottomrule", r"\end{tabular}"]
    if len(content.columns) > 6:
        tabular = [r"\resizebox{\textwidth}{!}{%", *tabular[:-1], tabular[-1] + "}"]
    caption = in_latex(f"{content.title}. {content.note}")
    lines = [r"\begin{table}[t]", r"\centering", rf"\caption{{{caption}}}", *tabular, r"\end{table}"]
    return "% needs \\usepackage{booktabs,graphicx}\n" + "\n".join(lines) + "\n"


def _in_latex_cell(
    content: ReportTable, known: Cell | None, best: float | None, difference: float | None
) -> str:
    if known is None:
        return "--"
    mean = content.figure(known.mean)
    parts = [rf"\textbf{{{mean}}}" if round(known.mean, 1) == best else mean]
    if known.deviation is not None:
        parts.append(rf"{{\scriptsize$\pm${known.deviation:.1f}}}")
    if difference is not None:
        parts.append(rf"{{\scriptsize(${difference:+.1f}$)}}")
    return " ".join(parts)


FORMATS: Mapping[str, Callable[[ReportTable], str]] = {"md": markdown, "csv": as_csv, "tex": latex}
"""By the end of a file's name."""
