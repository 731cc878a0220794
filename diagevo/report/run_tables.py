"""The paper's tables of hyperparameters and of training time, next to a run's."""

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from diagevo.config.loading import value_at
from diagevo.config.paper import STATED
from diagevo.errors import NotFoundError
from diagevo.memory.history import History
from diagevo.report.paper_tables import TITLES, Cell, ReportTable, TableName
from diagevo.report.report_data import Material

_ROLES = ("challenger", "solver")
ROWS: Mapping[TableName, tuple[tuple[str, str], ...]] = {
    "grpo": (
        *((f"Learning rate, {role}", f"{role}_grpo.learning_rate") for role in _ROLES),
        *((f"Weight decay, {role}", f"{role}_grpo.weight_decay") for role in _ROLES),
        *((f"KL penalty coefficient β, {role}", f"{role}_grpo.beta") for role in _ROLES),
        ("Rollout temperature", "sampling.temperature"),
        ("Rollout top-p", "sampling.top_p"),
    ),
    "training": (
        ("Solver GRPO global batch size", "solver_grpo.batch_questions"),
        ("Challenger GRPO global batch size", "challenger_grpo.batch_questions"),
        ("Solver GRPO group size G", "solver_grpo.group"),
        ("Challenger GRPO group size", "challenger_grpo.group"),
        ("Solver max steps per round", "solver_grpo.max_steps"),
        ("Challenger max steps per round", "challenger_grpo.max_steps"),
        ("Construction responses per candidate N", "round.responses"),
        ("Main-experiment training rounds", "round.rounds"),
    ),
    "thresholds": (
        ("Repetition penalty weight λ", "reward.repetition_weight"),
        ("Absolute difficulty lower bound p_low", "filter.p_low"),
        ("Absolute difficulty upper bound p_high", "filter.p_high"),
        ("Relative confidence threshold τ", "filter.tau"),
        ("State promotion threshold θ_up", "memory.theta_up"),
        ("Exploration-exploitation proportionality k", "schedule.k"),
        ("Deduplication similarity threshold θ_dup", "memory.theta_dup"),
        ("Node-merge similarity threshold θ_merge", "memory.theta_merge"),
        ("Node candidate shortlist size K", "memory.shortlist"),
    ),
}
"""The paper's rows in its order, each with the corresponding setting."""


def settings_table(name: TableName, history: History) -> ReportTable:
    """One of Tables 3 to 5. Raises NotFoundError for a run that `train` did not play."""
    config = history.configuration().config
    if "roles" not in config:
        raise NotFoundError(
            f"run {history.run_id} was trained elsewhere: it has no settings of the method",
            hint="name a run of diagevo train: --run RUN",
        )
    columns = ("the paper", history.run_id)
    rows = {
        label: dict(zip(columns, map(_cell, (STATED[key][0], value_at(config, key.split(".")))), strict=True))
        for label, key in ROWS[name]
    }
    note = f"The paper's values, and those that run {history.run_id} was last configured with."
    return ReportTable(TITLES[name], columns, rows, note, first="Setting", exact=True)


def _cell(value: Any) -> Cell:
    return Cell(float(Fraction(value)), None, 1)


COMPONENTS: dict[str, tuple[str, float | None]] = {
    "challenger": ("challenger optimization", 27.1),
    "candidates": ("candidate generation", 10.9),
    "votes": ("labels and filtering", 30.3),
    "solver": ("solver optimization", 25.9),
    "diagnosis": ("diagnosis and memory, in all", 5.7),
    "extraction": ("– error-cause extraction", 3.9),
    "deduplication": ("– deduplication and node assignment", 1.3),
    "consolidation": ("– skill-node consolidation", 0.4),
    "update": ("– state and frequency update, scheduling", 0.1),
    "orchestration": ("other orchestration", 0.1),
    "abandoned": ("abandoned attempts", None),
}
"""The rows of the paper's table of training time with its shares, and rows that it does not have."""


def time_table(material: Material) -> ReportTable:
    """The paper's table of training time for a run: each component, with diagnosis and memory also as a
    total. An older log has no time between stages. Raises NotFoundError if none was recorded.
    """
    if not material.seconds:
        raise NotFoundError(
            f"no stage of run {material.run_id} has recorded its time",
            hint=f"play a round: {material.next_round}",
        )
    spent: defaultdict[str, float] = defaultdict(float)
    for _, part, took in material.seconds:
        spent["deduplication" if part == "assignment" else part] += took
    beside = spent.pop("beside training", 0.0)
    total = sum(spent.values()) or 1.0
    parts = [part for part in COMPONENTS if part in spent or part != "orchestration"]
    whole = sum(spent[part] for part in parts if part != "diagnosis")
    spent["diagnosis"] = sum(
        spent[part] for part in ("extraction", "deduplication", "consolidation", "update")
    )
    columns = ("time (%)", "seconds", "the paper (%)")
    rows: dict[str, dict[str, Cell]] = {}
    for part, (name, paper) in COMPONENTS.items():
        values = (100 * spent[part] / total, spent[part], paper) if part in parts else (None, None, paper)
        found = zip(columns, values, strict=True)
        rows[name] = {column: Cell(value, None, 1) for column, value in found if value is not None}
    given_up = f" Attempts that were given up took {spent['abandoned']:,.0f} s." if spent["abandoned"] else ""
    note = (
        f"Wall time over {len(material.rounds)} committed rounds of this run ({whole:,.0f} s in all) beside"
        " the shares of the paper's run on eight H200 GPUs. Extraction counts where the round waited for it;"
        f" {beside:,.0f} s of it ran beside the solver's training and took no time of their own.{given_up}"
        f" Validation, and the commit of the last round, are not in it. {material.setting}"
    )
    return ReportTable(TITLES["time"], columns, rows, note, first="Component")
