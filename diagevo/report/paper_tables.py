"""The paper's tables from recorded runs: mean ± standard deviation over runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

from diagevo.arithmetic import WRITES
from diagevo.errors import NotFoundError
from diagevo.evaluation.ablation import FULL, VARIANTS, Plan, variant
from diagevo.evaluation.benchmarks import BENCHMARKS
from diagevo.evaluation.store import Evaluation, EvaluationStore
from diagevo.memory.compare.method_settings import family, method
from diagevo.memory.events import RunConfigured
from diagevo.memory.history import History
from diagevo.memory.read.round_figures import best_round, validations
from diagevo.text.fractions import fraction

NINE = {entry.name: entry for entry in BENCHMARKS if entry.group != "validation"}
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Math Avg.": tuple(name for name, entry in NINE.items() if entry.group == "mathematics"),
    "General Avg.": tuple(name for name, entry in NINE.items() if entry.group == "general"),
    "Overall": tuple(NINE),
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run's results at its best round, or before its first: shares in [0, 1] by column name."""

    run_id: str
    label: str
    variant: str | None
    seed: int
    round: int
    scores: Mapping[str, float]
    judges: Sequence[str] = ()
    """The judge of its benchmarks besides the rule."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The method's settings, by dotted key: what replicates have in common."""
    family: frozenset[str] = frozenset()
    """The run and its ancestors by fork."""


def by_protocol(evaluations: Iterable[Evaluation]) -> dict[int, dict[str, Evaluation]]:
    """By round and benchmark: the last finished evaluation of the whole set with the protocol's samples and
    temperature. A partial set, or another number of samples or temperature, is not comparable with the
    paper's.
    """
    found: dict[int, dict[str, Evaluation]] = {}
    for evaluation in evaluations:
        entry, conditions = NINE.get(evaluation.benchmark), evaluation.conditions
        if entry is None or evaluation.round is None or evaluation.metrics is None or not conditions["whole"]:
            continue
        if (conditions["samples"], conditions["temperature"]) == (entry.samples, entry.temperature):
            found.setdefault(evaluation.round, {})[evaluation.benchmark] = evaluation
    return found


def judged_by(names: Sequence[str]) -> str:
    """A sentence on who judged, from `judges`: it says if the paper's GPT-4o judge is missing."""
    asked = [name for name in names if name != "none"]
    if len(asked) == len(names):
        return f" Judge behind the rule: {'; '.join(names)}." if names else ""
    alone = "the rule alone decided, where the paper's mathematics have GPT-4o as judge"
    if not asked:
        return f" No judge: {alone}."
    return f" Judge behind the rule: {'; '.join(asked)}; in part none: {alone}."


def judges(evaluations: Iterable[Evaluation]) -> list[str]:
    """The judges of answers that the rule rejected, for the benchmarks where the paper has a judge."""
    return sorted(
        {
            "none" if judge is None else str(judge["model"])
            for evaluation in evaluations
            if NINE[evaluation.benchmark].judged
            for judge in [evaluation.conditions["judge"]]
        }
    )


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
"""The paper's tables, in its order; its Table 7 has figures reported by other systems, none from a run."""
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
    """A run before training, if anything was measured there, and at the round chosen by validation. The last
    round counts if nothing was validated. An average counts only if each of its benchmarks was fully
    measured. A run of a plan is labelled by its variant, and does not contribute the base model.
    """
    configuration = history.configuration()
    validated = validations(history)
    measured = by_protocol(EvaluationStore(history.database).list(history.run_id))
    planned = next((p for p in plan.runs if p.run == history.run_id), None) if plan else None
    rounds: dict[int, str] = {} if planned else {0: f"{_model(configuration, 'solver')}, untrained"}
    if history.commits:
        best = best_round(history) or history.commits[-1].round
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


BASELINES = {
    "r-zero": "R-Zero",
    "r-few": "R-Few, after its description",
    "absolute-zero": "Absolute Zero",
    "darc": "DARC, on a corpus of one's own",
    "spice": "SPICE, as implemented again by DARC",
}


def _label(configuration: RunConfigured) -> str:
    solver = _model(configuration, "solver")
    if (method := BASELINES.get(configuration.config.get("method", ""))) is not None:
        return f"{solver}, {method}"
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
    """A cell for each column with a score of any run."""
    scores = {column: [run.scores[column] for run in runs if column in run.scores] for column in columns}
    return {column: cell(found) for column, found in scores.items() if found}


def table(name: TableName, found: Sequence[RunResult], world: str | None = None) -> ReportTable:
    """One of the paper's tables. A sweep may use runs without a plan: each is labelled by its value.
    Raises NotFoundError if no run of it has been measured."""
    labels: dict[str, list[RunResult]] = {}
    for each in _chosen(name, found):
        labels.setdefault(each.label, []).append(each)
    groups = {row: runs for label, each in labels.items() for row, runs in by_row(label, each).items()}
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
    return sorted(trained, key=lambda o: fraction(o.settings[key].split()[0]))  # for a fork the first


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
    """The paper's order: each group's benchmarks followed by their average."""
    mathematics, general = GROUPS["Math Avg."], GROUPS["General Avg."]
    return [*mathematics, "Math Avg.", *general, "General Avg.", "Overall"]


def _variants(name: str) -> list[str]:
    """The table's variants and the full method where the paper puts it: last, or in order of value."""
    own = [v.name for v in VARIANTS if v.table == name and v is not FULL]
    if name == "k":
        return [own[0], FULL.name, *own[1:]]
    return [own[0], FULL.name, own[1]] if name == "tau" else [*own, FULL.name]


def by_row(label: str, runs: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Runs with one label by row: replicates together, and settings that differ added to the label. Runs that
    share rounds or a seed are not replicates: each has its own row by name."""
    every = sorted({key for run in runs for key in run.settings})
    differing = [key for key in every if len({run.settings.get(key) for run in runs}) > 1]
    groups: dict[str, list[RunResult]] = {}
    for run in _without_copies(runs):
        named = [label, *(f"{key} {run.settings.get(key, '–')}" for key in differing)]
        groups.setdefault(", ".join(named), []).append(run)
    rows: dict[str, list[RunResult]] = {}
    for name, members in groups.items():
        if any(a.family & b.family or a.seed == b.seed for a, b in combinations(members, 2)):
            rows |= {f"{name}, run {run.run_id}": [run] for run in members}
        else:
            rows[name] = members
    return rows


def _without_copies(runs: Sequence[RunResult]) -> list[RunResult]:
    """An untrained model's results count once, however many runs started from it or repeat it."""
    kept: list[RunResult] = []
    for run in runs:
        same = (o for o in kept if run.round == o.round == 0 and run.scores == o.scores)
        if next(same, None) is None:
            kept.append(run)
    return kept
