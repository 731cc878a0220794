"""The paper's tables from recorded runs: mean ± standard deviation over runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from diagevo.arithmetic import WRITES
from diagevo.errors import NotFoundError
from diagevo.evaluation.ablation import FULL, VARIANTS, Plan, variant
from diagevo.evaluation.protocol import best_round
from diagevo.evaluation.store import Evaluation, EvaluationStore
from diagevo.memory.audit.method import family, method
from diagevo.memory.events import CheckpointEvaluated, RunConfigured
from diagevo.memory.history import History
from diagevo.report.replicates import told_apart
from diagevo.report.scores import GROUPS, RunResult, by_protocol, judged_by, judges
from diagevo.text.fractions import fraction

TableName = Literal["main", "ablation", "grpo", "training", "thresholds", "time", "fixed", "k", "tau"]
TITLES: Mapping[TableName, str] = {
    "main": "Reasoning accuracy (%)",
    "ablation": "Ablations",
    "grpo": "GRPO settings",
    "training": "Training configuration",
    "thresholds": "Rewards, filter, thresholds",
    "time": "Training time by component",
    "fixed": "Fixed and adaptive generation (free : targeted)",
    "k": "Sensitivity of the schedule to k",
    "tau": "Sensitivity of the filter to τ",
}
"""The paper's tables, in its order; its Table 7 has figures that other systems report, none of a run."""
SWEPT: Mapping[str, tuple[str, str]] = {"k": ("k", "schedule.k"), "tau": ("τ", "filter.tau")}
"""Tables by the value of one setting: its symbol and key."""
OF_PLANS: tuple[TableName, ...] = ("ablation", "fixed", "k", "tau")
VALIDATION = {"mean_at_k": "Val. mean@k", "greedy": "Val. greedy"}


@dataclass(frozen=True, slots=True)
class Cell:
    """Mean and standard deviation over runs, in percent; the deviation is None with a single run."""

    mean: float
    deviation: float | None
    runs: int


@dataclass(frozen=True)
class ReportTable:
    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Cell]]
    note: str
    differences: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Percentage points against the full method."""
    first: str = "Method"
    """Head of the first column."""
    exact: bool = False
    """Whether values are shown as they are; percentages have one decimal."""

    def figure(self, mean: float) -> str:
        return f"{mean:g}" if self.exact else f"{mean:.1f}"


def results(history: History, plan: Plan | None = None) -> list[RunResult]:
    """A run where it began, if anything was measured there, and at the round its validation chose.

    The last round counts where nothing was validated. An average counts only where each of its benchmarks was
    measured whole. A run of a plan is known by its variant, and is no place to look for the base model.
    """
    configuration = history.configuration()
    validated = {
        fact.round: event.metrics
        for fact in history.events(CheckpointEvaluated)
        if (event := fact.event).benchmark == "validation" and event.role == "solver"
    }
    measured = by_protocol(EvaluationStore(history.database).list(history.run_id))
    planned = next((p for p in plan.runs if p.run == history.run_id), None) if plan else None
    metric = configuration.config.get("validation", {}).get("metric", "greedy")
    trained = {
        number: metrics[metric] for number, metrics in validated.items() if number and metric in metrics
    }
    rounds: dict[int, str] = {} if planned else {0: f"{_model(configuration, 'solver')}, untrained"}
    if history.commits:
        best = best_round(trained) if trained else history.commits[-1].round
        rounds[best] = variant(planned.variant).title if planned else _label(configuration)
    return [
        RunResult(
            run_id=history.run_id,
            label=label,
            variant=planned.variant if planned else None,
            seed=int(configuration.config.get("seed", 0)),
            round=number,
            scores=scores,
            judges=judges(measured.get(number, {}).values()),
            settings=method(history, number),
            family=family(history),
        )
        for number, label in rounds.items()
        if (scores := _scores(measured.get(number, {}), validated.get(number))) or number
    ]


def _scores(measured: Mapping[str, Evaluation], validated: Mapping[str, float] | None) -> dict[str, float]:
    scores = {name: e.metrics["score"] for name, e in measured.items() if e.metrics}
    for name, members in GROUPS.items():
        if all(member in scores for member in members):
            scores[name] = sum(scores[member] for member in members) / len(members)
    if validated is not None:
        scores |= {title: validated[key] for key, title in VALIDATION.items() if key in validated}
    return scores


def _label(configuration: RunConfigured) -> str:
    solver = _model(configuration, "solver")
    if configuration.config.get("method") == "r-zero":
        return f"{solver}, R-Zero"
    asked = configuration.config.get("diagnosis", {}).get("enabled", True)
    return f"{solver} (Diag. {_model(configuration, 'diagnostician') if asked else 'none'})"


def _model(configuration: RunConfigured, role: str) -> str:
    return configuration.models[role].name if role in configuration.models else "–"


def cell(values: Sequence[float]) -> Cell:
    """Shares over runs, as percentages. The standard deviation is the sample's (n - 1)."""
    n = len(values)
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else None
    return Cell(100 * mean, None if deviation is None else 100 * deviation, n)


def cells_of(runs: Sequence[RunResult], columns: Iterable[str]) -> dict[str, Cell]:
    """A cell for each of the columns that any of the runs has a score for."""
    scores = {column: [run.scores[column] for run in runs if column in run.scores] for column in columns}
    return {column: cell(found) for column, found in scores.items() if found}


def table(name: TableName, found: Sequence[RunResult], world: str | None = None) -> ReportTable:
    """One of the paper's tables. A sweep may be of runs without a plan: each stands by its value. Raises
    NotFoundError where no run of it has been measured."""
    labels: dict[str, list[RunResult]] = {}
    for each in _chosen(name, found):
        labels.setdefault(each.label, []).append(each)
    groups = {row: runs for label, each in labels.items() for row, runs in told_apart(label, each).items()}
    columns = [*(main_columns() if name == "main" else GROUPS), *VALIDATION.values()]
    present = [c for c in columns if any(c in o.scores for runs in groups.values() for o in runs)]
    if not present:
        planned = name != "main" and not (name in SWEPT and found)
        hint = "diagevo ablate plan, then ablate run" if planned else "diagevo eval run all --run RUN"
        raise NotFoundError(f"no measured run for the table {name}", hint=f"measure: {hint}")
    rows = {label: cells_of(runs, present) for label, runs in groups.items()}
    full = rows.get(FULL.title, {})
    differences = {
        label: {c: known.mean - full[c].mean for c, known in cells.items() if c in full}
        for label, cells in rows.items()
        if full and label != FULL.title
    }
    return ReportTable(TITLES[name], tuple(present), rows, _note(rows, groups, world), differences)


def _chosen(name: TableName, found: Sequence[RunResult]) -> list[RunResult]:
    """The runs of a table, in the order of its rows."""
    if name == "main":
        return list(found)
    if name not in SWEPT or any(each.variant for each in found):
        wanted = _variants(name)
        return sorted((o for o in found if o.variant in wanted), key=lambda o: wanted.index(o.variant or ""))
    symbol, key = SWEPT[name]
    trained = [replace(o, label=f"{symbol} = {o.settings[key]}") for o in found if o.round]
    return sorted(trained, key=lambda o: fraction(o.settings[key].split()[0]))  # of a fork the first


def _note(
    rows: Mapping[str, Mapping[str, Cell]], groups: Mapping[str, Sequence[RunResult]], world: str | None
) -> str:
    counts = sorted({known.runs for cells in rows.values() for known in cells.values()})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    names = list(dict.fromkeys(outcome.run_id for runs in groups.values() for outcome in runs))
    which = f"{'Run' if len(names) == 1 else 'Runs'} {', '.join(names)}"
    note = f"{which}, each at its best validated round: mean ± standard deviation over {number}."
    if counts == [1]:
        each = "" if len(names) == 1 else "each "
        note = f"{which}, {each}at its best validated round."
    note += judged_by(sorted({j for runs in groups.values() for outcome in runs for j in outcome.judges}))
    if world is not None:
        note += (
            f" Measured in the {world} world, a small laboratory: {WRITES}. No figure of a language model."
        )
    return note


def main_columns() -> list[str]:
    """The paper's order: each group's benchmarks with its average behind them."""
    mathematics, general = GROUPS["Math Avg."], GROUPS["General Avg."]
    return [*mathematics, "Math Avg.", *general, "General Avg.", "Overall"]


def _variants(name: str) -> list[str]:
    """The table's variants and the full method where the paper has it: last, or in order of value."""
    own = [v.name for v in VARIANTS if v.table == name and v is not FULL]
    if name == "k":
        return [own[0], FULL.name, *own[1:]]
    return [own[0], FULL.name, own[1]] if name == "tau" else [*own, FULL.name]
