"""Where a run's time went, beside the paper's."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from diagevo.errors import NotFoundError
from diagevo.report.material import Material
from diagevo.report.tables import TITLES, Cell, ReportTable

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
