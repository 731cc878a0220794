"""The report as one HTML page that opens from disk: JavaScript, data and pictures are all inside."""

import csv
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
DRAW = """
window.drawn = {};
window.drawReport = async function (specs) {
  for (const [name, spec] of Object.entries(specs)) {
    const target = document.getElementById("figure-" + name);
    try {
      const options = {actions: false, renderer: "svg"};
      window.drawn[name] = await vegaEmbed(target, spec, options);
    } catch (error) {
      target.textContent = "This figure could not be drawn: " + error;
      console.error(name, error);
    }
  }
  document.body.dataset.drawn = Object.keys(window.drawn).length;
  document.body.dataset.drawnAfterMs = Math.round(performance.now());
};
"""
CSS = """
:root { color-scheme: light; }
body { font: 15px/1.5 Helvetica, Arial, sans-serif; color: #222; background: #fff; margin: 0 auto;
  max-width: 1020px; padding: 2rem 1.5rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.6rem 0 .6rem; }
.note { color: #555; } figure { margin: 0; overflow-x: auto; }
figcaption { max-width: 46rem; color: #333; font-size: .92rem; margin-top: .5rem; }
table { border-collapse: collapse; font-size: .86rem; margin: .6rem 0; }
.wide { overflow-x: auto; }
th, td { text-align: left; padding: .2rem .7rem .2rem 0; border-bottom: 1px solid #e3e3e3; }
td { vertical-align: top; }
th { font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
details { margin-top: .4rem; font-size: .86rem; } summary { cursor: pointer; color: #0b3c5d; }
nav a { color: #0b3c5d; margin-right: .9rem; white-space: nowrap; }
code { background: #f3f3f3; padding: 0 .25em; }
@media print { nav, details { display: none; } figure { break-inside: avoid; } }
"""
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


def page(material: Material, drawn: Sequence[Drawn], tables: Mapping[TableName, Table]) -> str:
    """The whole page."""
    figures = {d.entry.name: d.result for d in drawn if isinstance(d.result, Figure)}
    bundle = converter().javascript_bundle(
        snippet="window.vegaEmbed = vegaEmbed;" + DRAW, vl_version=VEGA_LITE
    )
    specs = json_text({name: themed(figure.chart) for name, figure in figures.items()})
    sections = [(d.entry.name, d.entry.title) for d in drawn]
    sections += [(f"table-{name}", content.title) for name, content in tables.items()]
    body = [
        f"<h1>DiagEvo: run {_text(material.run_id)}</h1>",
        f'<p class="note">{_text(_about(material))}</p>',
        "<nav>" + " ".join(f'<a href="#{name}">{_text(title)}</a>' for name, title in sections) + "</nav>",
        "<h2>Rounds</h2>",
        html_table(_rounds(material)) if material.rounds else "<p>No round is committed yet.</p>",
    ]
    for each in drawn:
        body.append(f'<h2 id="{each.entry.name}">{_text(each.entry.title)}</h2>')
        body.append(_section(each))
    for name, content in tables.items():
        body.append(f'<h2 id="table-{name}">{_text(content.title)}</h2>{_table(content)}')
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            '<link rel="icon" href="data:,">',
            f"<title>DiagEvo: run {_text(material.run_id)}</title><style>{CSS}</style></head><body>",
            *body,
            f'<script type="application/json" id="specs">{_json(specs)}</script>',
            f'<script type="module">{_code(bundle)}\n'
            'window.drawReport(JSON.parse(document.getElementById("specs").textContent));</script>',
            "</body></html>\n",
        )
    )


def _section(each: Drawn) -> str:
    name, result = each.entry.name, each.result
    if isinstance(result, Missing):
        return (
            f'<p class="note">Not drawn: {_text(result.reason)}. Supply it with'
            f" <code>{_text(result.command)}</code>.</p>"
        )
    if name == "reactivations":
        evidence = result.rows[:SHOWN_REACTIVATIONS]
        shown = html_table([{title: row[key] for key, title in EVIDENCE.items()} for row in evidence])
    else:
        shown = f"<details><summary>Data</summary>{html_table(result.rows[:200])}</details>"
        if len(result.rows) > 200:
            shown += (
                f'<p class="note">The first 200 of {len(result.rows)} rows; figures/{name}.csv has all.</p>'
            )
    return (
        f'<figure><div id="figure-{name}" role="img" aria-label="{_text(each.entry.title)}"></div>'
        f"<figcaption>{_text(result.caption)}</figcaption></figure>{shown}"
    )


def _about(material: Material) -> str:
    configured = material.configuration
    if configured is None:
        return material.setting
    models = ", ".join(f"{role} {model.name}" for role, model in sorted(configured.models.items()))
    return (
        f"{material.setting} {models}; embeddings {configured.embedder.name}; DiagEvo {configured.version}."
    )


def _rounds(material: Material) -> list[dict[str, Any]]:
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
            "kept": sum(c.round == facts.round and c.verdict == "kept" for c in material.candidates),
        }
        for facts in material.rounds
    ]


def _exact(value: Any) -> str:
    return str(value) if value.denominator == 1 else f"{value} = {float(value):.3f}"


def _table(content: Table) -> str:
    """A paper's table; its text is the one of its other formats."""
    head, *body = cells(content)
    lines = "".join(
        f"<tr><td>{_text(label)}</td>"
        + "".join(f"<td class=n>{_text(text)}</td>" for text in values)
        + "</tr>"
        for label, *values in body
    )
    heads = f"<th>{_text(head[0])}</th>" + "".join(f"<th class=n>{_text(text)}</th>" for text in head[1:])
    return (
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'
        f'<p class="note">{_text(content.note)}</p>'
    )


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))

    def cell(tag: str, value: Any) -> str:
        number = isinstance(value, int | float)
        shown = f"{value:.4g}" if isinstance(value, float) else "–" if value is None else str(value)
        return f"<{tag}{' class=n' if number else ''}>{_text(shown)}</{tag}>"

    first = rows[0] if rows else {}
    numbers = {name for name in names if isinstance(first.get(name), int | float)}
    head = "".join(f"<th{' class=n' if name in numbers else ''}>{_text(name)}</th>" for name in names)
    lines = "".join("<tr>" + "".join(cell("td", row.get(name)) for name in names) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _text(value: str) -> str:
    return html.escape(visible(value))


def _json(content: str) -> str:
    """JSON inside a script element: a model's text must not end the element, and `<` may be written so."""
    return content.replace("<", "\\u003c")


def _code(content: str) -> str:
    """JavaScript inside a script element; in its strings and patterns the escaped slash means the same."""
    return content.replace("</script", "<\\/script")
