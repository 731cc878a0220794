"""The paper's tables of hyperparameters, beside those of a run."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from diagevo.config.paper import STATED
from diagevo.errors import NotFoundError
from diagevo.memory.history import History
from diagevo.report.tables import TITLES, Cell, ReportTable, TableName

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
"""The paper's rows in its order, each with the setting that it is here."""


def settings_table(name: TableName, history: History) -> ReportTable:
    """One of Tables 3 to 5. Raises NotFoundError for a run that was not played by `train`."""
    config = history.configuration().config
    if "roles" not in config:
        raise NotFoundError(
            f"run {history.run_id} was trained elsewhere: it has no settings of the method",
            hint="name a run of diagevo train: --run RUN",
        )
    columns = ("the paper", history.run_id)
    rows = {
        label: dict(zip(columns, (_cell(STATED[key][0]), _cell(_value(config, key))), strict=True))
        for label, key in ROWS[name]
    }
    note = f"The paper's values, and those that run {history.run_id} was last configured with."
    return ReportTable(TITLES[name], columns, rows, note, first="Setting", exact=True)


def _value(config: Mapping[str, Any], key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = found[part]
    return found


def _cell(value: Any) -> Cell:
    return Cell(float(Fraction(value)), None, 1)
