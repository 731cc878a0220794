"""Where each table and figure of the paper stands: made by which command, or what it lacks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from diagevo.errors import NotFoundError
from diagevo.evaluation.ablation import FULL, VARIANTS, Plan, load_plan, plans, states
from diagevo.memory.history import History
from diagevo.report.figure import Entry, Missing
from diagevo.report.figures import FIGURES, NOT_MEASURED, draw
from diagevo.report.hyperparameters import ROWS
from diagevo.report.material import Material
from diagevo.report.tables import LABELS, TITLES, VALIDATION, TableName, results, table

OF_PLAYED = ("intro", "performance", "labels", "difficulty", "table-main", "table-time")


@dataclass(frozen=True)
class ReportItem:
    """A table or figure. `command` makes it where it is ready, else supplies what is missing."""

    paper: str | None
    """Its number in the paper; null for a figure of DiagEvo's own."""
    name: str
    title: str
    ready: bool
    missing: str | None
    command: str | None
    labels: list[str] = field(default_factory=list)
    """In the paper's source."""


def standing(history: History, material: Material, home: Path) -> list[ReportItem]:
    """The figures, those of the paper in its order, and the paper's tables."""
    planned = [load_plan(home, name) for name in plans(home)]
    lines = [_figure(entry, material) for entry in FIGURES]
    number, label = NOT_MEASURED
    why = "a drawing of the method: nothing in it is measured"
    drawing = ReportItem(number, "–", "One round", ready=False, missing=why, command=None, labels=[label])
    lines.insert(1, drawing)
    lines += [_table(n, name, history, material, planned) for n, name in enumerate(TITLES, 1)]
    return [_of_ingested(line) for line in lines] if material.ingested else lines


def _of_ingested(line: ReportItem) -> ReportItem:
    """The trainer of an ingested run keeps its checkpoints and its times itself, and its labels are known."""
    if line.ready or line.name not in OF_PLAYED:
        return line
    return replace(line, missing="only of a run that diagevo train plays", command=None)


def _table(
    number: int, of: TableName, history: History, material: Material, planned: Sequence[Plan]
) -> ReportItem:
    name = f"table-{of}"
    own = None, f"diagevo report build --only {name} --run {history.run_id}"
    missing, command = next(_lacking(of, history, material, planned), own)
    return ReportItem(
        f"Table {number}", name, TITLES[of], missing is None, missing, command, labels=[LABELS[of]]
    )


def _figure(of: Entry, material: Material) -> ReportItem:
    found = draw(of.name, [material])
    missing, command = None, f"diagevo report build --only {of.name} --run {material.run_id}"
    if isinstance(found, Missing):
        missing, command = found.reason, found.command
    return ReportItem(of.paper, of.name, of.title, missing is None, missing, command, labels=list(of.labels))


def _lacking(
    name: TableName, history: History, material: Material, planned: Sequence[Plan]
) -> Iterator[tuple[str | None, str]]:
    """What a table lacks, and the command that comes next; a plan's that is ready has a command too."""
    run = history.run_id
    if name == "main":
        try:
            measured = set(table("main", results(history)).columns) - set(VALIDATION.values())
            missing = "no benchmark measured: validation stands in the table alone"
        except NotFoundError:
            measured, missing = set(), "nothing of this run was measured"
        if not measured:
            yield missing, f"diagevo eval run all --run {run}"
    elif name in ROWS:
        if "roles" not in material.config:
            yield "its trainer is another: no settings of the method", "diagevo train"
    elif name == "time":
        if not material.seconds:
            yield "no stage has recorded its time", material.next_round
    elif name == "baselines":
        yield (
            "the reported figures are given in a CSV",
            f"diagevo report build --run {run} --reported FILE.csv --only table-baselines",
        )
    else:
        yield _of_plans(name, history, planned)


def _of_plans(name: str, history: History, planned: Sequence[Plan]) -> tuple[str | None, str]:
    wanted = [variant.name for variant in VARIANTS if variant.table == name and variant is not FULL]
    found = [plan for plan in planned if any(p.variant in wanted for p in plan.runs)]
    for plan in found:
        if any(s.state == "trained" and s.planned.variant in wanted for s in states(history.database, plan)):
            return None, f"diagevo report build --only table-{name} --plan {plan.name}"
    if found:
        return f"no variant of plan {found[0].name} is trained yet", f"diagevo ablate run {found[0].name}"
    return "no plan has its variants", f"diagevo ablate plan {name} --variants {','.join(['full', *wanted])}"
