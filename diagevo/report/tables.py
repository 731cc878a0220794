"""The paper's tables from recorded runs: Markdown, CSV and LaTeX; mean ± standard deviation over runs."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from diagevo.errors import ConfigError, NotFoundError
from diagevo.evaluation.ablation import FULL, VARIANTS, Plan, variant
from diagevo.evaluation.benchmarks import BENCHMARKS
from diagevo.evaluation.protocol import best_round
from diagevo.evaluation.store import EvaluationStore
from diagevo.memory.events import CheckpointEvaluated, RunConfigured
from diagevo.memory.history import History, expect

TableName = Literal["main", "ablation", "fixed", "k", "tau"]
TITLES: Mapping[str, str] = {
    "main": "Reasoning accuracy (%)",
    "ablation": "Ablations",
    "fixed": "Fixed and adaptive generation (free : targeted)",
    "k": "Sensitivity of the schedule to k",
    "tau": "Sensitivity of the filter to τ",
}
NINE = {entry.name: entry for entry in BENCHMARKS if entry.group != "validation"}
GROUPS = {
    "Math Avg.": tuple(name for name, entry in NINE.items() if entry.group == "mathematics"),
    "General Avg.": tuple(name for name, entry in NINE.items() if entry.group == "general"),
    "Overall": tuple(NINE),
}
VALIDATION = {"mean_at_k": "Val. mean@k", "greedy": "Val. greedy"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to at its best round: shares in [0, 1] by column name."""

    run_id: str
    label: str
    variant: str | None
    seed: int
    round: int
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Cell:
    """Mean and standard deviation over runs, in percent; the deviation is None with a single run."""

    mean: float
    deviation: float | None
    runs: int


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Cell]]
    note: str
    differences: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Percentage points against the full method."""


def outcome(history: History, plan: Plan | None = None) -> Outcome | None:
    """A run at the round its validation chose (the last one where nothing was validated); None before that.

    An average counts only where each of its benchmarks was measured whole.
    """
    validated = {
        recorded.round: event
        for recorded in history.events(CheckpointEvaluated)
        if (event := expect(recorded, CheckpointEvaluated)).benchmark == "validation" and recorded.round
    }
    if not history.commits:
        return None
    configuration = history.configuration()
    metric = configuration.config.get("validation", {}).get("metric", "greedy")
    round_ = history.commits[-1].round
    if validated:
        round_ = best_round({number: event.metrics[metric] for number, event in validated.items()})
    scores: dict[str, float] = {}
    for evaluation in EvaluationStore(history.database).list(history.run_id):
        whole = evaluation.conditions.get("whole") and evaluation.benchmark in NINE
        if evaluation.round == round_ and evaluation.metrics and whole:
            scores[evaluation.benchmark] = evaluation.metrics["score"]
    for name, members in GROUPS.items():
        if all(member in scores for member in members):
            scores[name] = sum(scores[member] for member in members) / len(members)
    if round_ in validated:
        scores |= {title: validated[round_].metrics[key] for key, title in VALIDATION.items()}
    planned = next((p for p in plan.runs if p.run == history.run_id), None) if plan else None
    return Outcome(
        history.run_id,
        variant(planned.variant).title if planned else _label(configuration),
        planned.variant if planned else None,
        int(configuration.config.get("seed", 0)),
        round_,
        scores,
    )


def _label(configuration: RunConfigured) -> str:
    models = configuration.models
    solver = models["solver"].name if "solver" in models else "–"
    diagnostician = models["diagnostician"].name if "diagnostician" in models else "–"
    return f"{solver} (Diag. {diagnostician})"


def cell(values: Sequence[float]) -> Cell:
    """Shares over runs, as percentages. The standard deviation is the sample's (n - 1)."""
    n = len(values)
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else None
    return Cell(100 * mean, None if deviation is None else 100 * deviation, n)


def table(name: TableName, outcomes: Sequence[Outcome], world: str | None = None) -> Table:
    """One of the paper's tables. Raises NotFoundError where no run of it has been measured."""
    groups: dict[str, list[Outcome]] = {}
    wanted = None if name == "main" else _variants(name)
    for each in outcomes:
        if wanted is None or each.variant in wanted:
            groups.setdefault(each.label, []).append(each)
    if wanted is not None:
        order = [variant(v).title for v in wanted]
        groups = {label: groups[label] for label in order if label in groups}
    columns = [*(NINE if name == "main" else ()), *GROUPS, *VALIDATION.values()]
    present = [c for c in columns if any(c in o.scores for runs in groups.values() for o in runs)]
    if not present:
        raise NotFoundError(
            f"no measured run for the table {name}", hint="measure them: diagevo eval run all --run RUN"
        )
    rows = {
        label: {c: cell([o.scores[c] for o in runs if c in o.scores]) for c in present if _any(runs, c)}
        for label, runs in groups.items()
    }
    full = rows.get(FULL.title, {})
    differences = {
        label: {c: known.mean - full[c].mean for c, known in cells.items() if c in full}
        for label, cells in rows.items()
        if full and label != FULL.title
    }
    counts = sorted({known.runs for cells in rows.values() for known in cells.values()})
    note = (
        f"Mean ± standard deviation over {'–'.join(map(str, counts))} runs, each at its best validated round."
    )
    if world is not None:
        note += f" Measured in the {world} world, a small laboratory: no figure of a language model."
    return Table(TITLES[name], tuple(present), rows, note, differences if name != "main" else {})


def _any(runs: Sequence[Outcome], column: str) -> bool:
    return any(column in o.scores for o in runs)


def _variants(name: str) -> list[str]:
    """The table's variants and the full method where the paper has it: last, or in order of value."""
    own = [v.name for v in VARIANTS if v.table == name and v is not FULL]
    if name == "k":
        return [own[0], FULL.name, *own[1:]]
    return [own[0], FULL.name, own[1]] if name == "tau" else [*own, FULL.name]


def _shown(name: str) -> str:
    return NINE[name].title if name in NINE else name


def _number(known: Cell | None, between: str = " ± ") -> str:
    if known is None:
        return "–"
    spread = "" if known.deviation is None else f"{between}{known.deviation:.1f}"
    return f"{known.mean:.1f}{spread}"


def markdown(content: Table) -> str:
    lines = [_line(["Method", *map(_shown, content.columns)]), "|---" + "|---:" * len(content.columns) + "|"]
    lines += [
        _line([label, *(_with_difference(content, label, c) for c in content.columns)])
        for label in content.rows
    ]
    return f"**{content.title}.** {content.note}\n\n" + "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _with_difference(content: Table, label: str, column: str) -> str:
    shown = _number(content.rows[label].get(column))
    difference = content.differences.get(label, {}).get(column)
    return shown if difference is None else f"{shown} ({difference:+.1f})"


def as_csv(content: Table) -> str:
    """One line a method and column, with full precision."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["method", "column", "mean", "standard_deviation", "runs", "difference_from_full"])
    for label, cells in content.rows.items():
        for column, known in cells.items():
            difference = content.differences.get(label, {}).get(column)
            writer.writerow([label, _shown(column), known.mean, known.deviation, known.runs, difference])
    return buffer.getvalue()


_TEX = {
    "&": r"\&",
    "%": r"\%",
    "_": r"\_",
    "#": r"\#",
    "τ": r"$\tau$",
    "±": r"$\pm$",
    "–": "--",
    "λ": r"$\lambda$",
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)


def latex(content: Table) -> str:
    """A booktabs table; the best mean of each column in bold, ties included."""
    best = {
        c: max(round(cells[c].mean, 1) for cells in content.rows.values() if c in cells)
        for c in content.columns
    }
    lines = [
        r"\begin{table}[t]",
        r"  \centering",
        rf"  \caption{{{_tex(content.title)}. {_tex(content.note)}}}",
        rf"  \begin{{tabular}}{{l{'c' * len(content.columns)}}}",
        r"    \toprule",
        "    " + " & ".join(_tex(c) for c in ["Method", *map(_shown, content.columns)]) + r" \\",
        r"    \midrule",
    ]
    for label, cells in content.rows.items():
        shown = [_tex_cell(cells.get(c), best[c]) for c in content.columns]
        lines.append("    " + " & ".join([_tex(label), *shown]) + r" \\")
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _tex_cell(known: Cell | None, best: float) -> str:
    if known is None:
        return "--"
    mean = f"{known.mean:.1f}"
    mean = rf"\textbf{{{mean}}}" if round(known.mean, 1) == best else mean
    return mean if known.deviation is None else rf"{mean} {{\scriptsize$\pm${known.deviation:.1f}}}"


FORMATS: Mapping[str, Callable[[Table], str]] = {"md": markdown, "csv": as_csv, "latex": latex}


def rendered(content: Table, how: str) -> str:
    if how not in FORMATS:
        raise ConfigError(f"no table format {how}", hint="there are: " + ", ".join(FORMATS))
    return FORMATS[how](content)
