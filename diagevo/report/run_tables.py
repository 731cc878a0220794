"""The paper's tables of hyperparameters and of training time, beside those of a run."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from diagevo.config.paper import STATED
from diagevo.errors import NotFoundError
from diagevo.memory.history import History
from diagevo.report.material import Material
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
"""The rows of the paper's table of training time with its shares, and what it does not have."""


@dataclass(frozen=True, slots=True)
class _TimeShare:
    share: float
    """Percent of the whole."""
    seconds: float


def _spent(material: Material) -> tuple[dict[str, _TimeShare], float]:
    """Each component's time, diagnosis and memory also as a whole, and what ran beside training. An older log
    has no time between stages."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for _, part, took in material.seconds:
        seconds["deduplication" if part == "assignment" else part] += took
    beside = seconds.pop("beside training", 0.0)
    total = sum(seconds.values()) or 1.0
    inner = ("extraction", "deduplication", "consolidation", "update")
    seconds["diagnosis"] = sum(seconds[part] for part in inner)
    known = [part for part in COMPONENTS if part in seconds or part != "orchestration"]
    return {part: _TimeShare(100 * seconds[part] / total, seconds[part]) for part in known}, beside


def _time_note(material: Material, spent: Mapping[str, _TimeShare], beside: float) -> str:
    total = sum(each.seconds for part, each in spent.items() if part != "diagnosis")
    abandoned = spent["abandoned"].seconds
    given_up = f" Attempts that were given up took {abandoned:,.0f} s." if abandoned else ""
    return (
        f"Wall time over {len(material.rounds)} committed rounds of this run ({total:,.0f} s in all) beside"
        " the shares of the paper's run on eight H200 GPUs. Extraction counts where the round waited for it;"
        f" {beside:,.0f} s of it ran beside the solver's training and took no time of their own.{given_up}"
        f" Validation, and the commit of the last round, are not in it. {material.setting}"
    )


def time_table(material: Material) -> ReportTable:
    """The paper's table of training time, of a run. Raises NotFoundError where none was recorded."""
    if not material.seconds:
        raise NotFoundError(
            f"no stage of run {material.run_id} has recorded its time",
            hint=f"play a round: {material.next_round}",
        )
    spent, beside = _spent(material)
    rows = {
        name: {
            column: Cell(value, None, 1)
            for column, value in (
                ("time (%)", spent[part].share if part in spent else None),
                ("seconds", spent[part].seconds if part in spent else None),
                ("the paper (%)", paper),
            )
            if value is not None
        }
        for part, (name, paper) in COMPONENTS.items()
    }
    columns = ("time (%)", "seconds", "the paper (%)")
    note = _time_note(material, spent, beside)
    return ReportTable(TITLES["time"], columns, rows, note, first="Component")
