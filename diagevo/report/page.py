"""The report as one HTML page that opens from disk: JavaScript, data and pictures are all inside."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from diagevo.errors import extra
from diagevo.report.causes import SHOWN_REACTIVATIONS
from diagevo.report.figure import Entry, Figure, Missing
from diagevo.report.material import Material
from diagevo.report.style import themed
from diagevo.report.table_text import cells
from diagevo.report.tables import Table, TableName
from diagevo.texts import csv_text, json_text, visible

VEGA_LITE = "6.4"
SHOWN_ROWS = 200
"""Of a figure's data on the page; its CSV file has all."""

Cell = tuple[str, bool]
"""What stands in a cell of a table, and whether it is a number."""
Grid = list[list[Cell]]
"""A table as its template takes it: the head, then the rows."""

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


@dataclass(frozen=True)
class Drawn:
    """An entry with what came of it."""

    entry: Entry
    result: Figure | Missing


def converter() -> Any:
    """vl-convert, of the extra `report`."""
    with extra("report", "a picture"):
        import vl_convert
    return vl_convert


def svg(figure: Figure) -> str:
    return converter().vegalite_to_svg(themed(figure.chart), vl_version=VEGA_LITE)


def png(picture: str, scale: float = 2.0) -> bytes:
    """The pixels of an SVG picture."""
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
    picture = svg(figure)
    files: dict[str, str | bytes] = {
        "svg": picture,
        "png": png(picture),
        "csv": as_csv(figure.rows),
        "vl.json": json_text(themed(figure.chart)),
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


def page(
    material: Material,
    drawn: Sequence[Drawn],
    tables: Mapping[TableName, Table],
    beside: Sequence[str] = (),
) -> str:
    """The whole page, from `templates/`; `beside` names the runs that stand in its figures and tables too.
    Whatever a template is given is made visible and escaped."""
    with extra("report", "a page"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    templates = Environment(
        loader=PackageLoader("diagevo.report"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    figures = {d.entry.name: d.result for d in drawn if isinstance(d.result, Figure)}
    snippet = (
        "window.vegaEmbed = vegaEmbed;\n" + files("diagevo.report").joinpath("templates/draw.js").read_text()
    )
    bundle = converter().javascript_bundle(snippet=snippet, vl_version=VEGA_LITE)
    specs = json_text({name: themed(figure.chart) for name, figure in figures.items()})
    return templates.get_template("page.html").render(
        run=material.run_id,
        beside=beside,
        about=_about(material),
        rounds=_grid(_rounds(material)),
        phases=_grid(_phases(material)),
        figures=[_section(each) for each in drawn],
        tables=[
            {"name": f"table-{name}", "title": content.title, "grid": _figures(content), "note": content.note}
            for name, content in tables.items()
        ],
        # JSON inside a script element: a model's text must not end the element, and `<` may be written so.
        specs=Markup(specs.replace("<", "\\u003c")),
        # JavaScript inside one; in its strings and patterns the escaped slash means the same.
        code=Markup(bundle.replace("</script", "<\\/script")),
    )


def _section(each: Drawn) -> dict[str, Any]:
    """A figure as its template takes it."""
    name, result = each.entry.name, each.result
    section = {"name": name, "title": each.entry.title}
    if isinstance(result, Missing):
        return section | {"missing": result}
    if name == "reactivations":
        evidence = [
            {title: row[key] for key, title in EVIDENCE.items()} for row in result.rows[:SHOWN_REACTIVATIONS]
        ]
        return section | {"caption": result.caption, "evidence": _grid(evidence)}
    return section | {
        "caption": result.caption,
        "data": _grid(result.rows[:SHOWN_ROWS]),
        "left_out": len(result.rows) > SHOWN_ROWS,
        "rows": len(result.rows),
    }


def _about(material: Material) -> str:
    configured = material.configuration
    if configured is None:
        return material.setting
    models = ", ".join(f"{role} {model.name}" for role, model in sorted(configured.models.items()))
    return (
        f"{material.setting} {models}; embeddings {configured.embedder.name}; DiagEvo {configured.version}."
    )


def _rounds(material: Material) -> list[dict[str, Any]]:
    reasons = sorted({reason for facts in material.rounds for reason in facts.measured.invalid})
    return [
        {
            "round": facts.round,
            "ε": _exact(facts.epsilon),
            "F": facts.failures,
            "z": "–" if facts.z is None else _exact(facts.z),
            "ε next": _exact(facts.epsilon_next),
            "Active": facts.active,
            "Mastered": facts.mastered,
            "nodes": facts.nodes,
            "candidates": sum(c.round == facts.round for c in material.candidates),
            "without a box": facts.measured.without_box,
            "undecided comparisons": facts.measured.undecided,
            **{reason.replace("_", " "): facts.measured.invalid[reason] for reason in reasons},
            "kept": sum(c.round == facts.round and c.verdict == "kept" for c in material.candidates),
            "failures": facts.measured.failures,
            "against a false label": facts.measured.against_false_labels,
            "right after all": facts.measured.right,
        }
        for facts in material.rounds
    ]


def _phases(material: Material) -> list[dict[str, Any]]:
    return [
        {
            "round": number,
            "phase": event.stage,
            "steps": event.steps,
            "KL at step 1": event.first_kl,
            "sampler apart": event.sampling_gap,
            "reward from": event.reward_lowest,
            "to": event.reward_highest,
            "completions": event.completions,
            "cut off": event.cut_off,
            "attention": event.attention,
            "found": ", ".join(name.replace("_", " ") for name in event.findings) or None,
        }
        for number, event in material.phases
    ]


def _exact(value: Any) -> str:
    return str(value) if value.denominator == 1 else f"{value} = {float(value):.3f}"


def _figures(content: Table) -> Grid:
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
