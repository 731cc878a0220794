"""The tables of a run of another trainer's rollouts: what passed, by round, by step and by cause."""

from typing import TYPE_CHECKING, Any

from ..render.result import Rows
from ..render.rows import row_of
from ..render.table import Column

if TYPE_CHECKING:
    from diagevo.memory.audit.runs import RunStory

ROUNDS = (
    Column("round", align="right"),
    Column("candidates", "groups", "right"),
    Column("all_passed", "all passed", "right"),
    Column("kept", "with both", "right"),
    Column("all_failed", "all failed", "right"),
    Column("rollouts", align="right"),
    Column("passes", "passed", "right"),
    Column("pass_rate", "pass rate", "right"),
    Column("observed", "failures", "right"),
)
STEPS = (
    Column("step", align="right"),
    Column("round", align="right"),
    Column("groups", align="right"),
    Column("rollouts", align="right"),
    Column("passes", "passed", "right"),
    Column("pass_rate", "pass rate", "right"),
)
CAUSES = (
    Column("cause_id", "cause"),
    Column("failures", align="right"),
    Column("share", "of all", "right"),
    Column("groups", "in groups", "right"),
    Column("pass_rate", "their pass rate", "right"),
    Column("description"),
)
SHOWN = 12
"""Steps, the last ones, and causes, those of most failures."""


def pass_rates(story: "RunStory") -> list[str | Rows]:
    """Three tables; what they leave out is said, with the command that has it."""
    rates = story.pass_rates
    if rates is None:
        return []
    rounds = [row_of(line) | _outcomes(line.verdicts) for line in story.rounds]
    steps, causes = rates.steps[-SHOWN:], rates.causes[:SHOWN]
    tables = ((ROUNDS, rounds), (STEPS, steps), (CAUSES, causes))
    parts: list[str | Rows] = [Rows(columns, rows) for columns, rows in tables if rows]
    run = story.line.run_id
    if hidden := len(rates.steps) - len(steps):
        parts.append(f'{hidden} steps before: diagevo memory query "SELECT * FROM v_step" --run {run}')
    if hidden := len(rates.causes) - len(causes):
        parts.append(f"{hidden} more causes: diagevo runs show {run} --json")
    return parts


def _outcomes(verdicts: dict[str, int]) -> dict[str, Any]:
    return {"all_passed": verdicts.get("too_easy", 0), "all_failed": verdicts.get("too_hard", 0)}
