"""The tables of a run of another trainer's rollouts: what passed, by round, by step and by cause."""

from typing import TYPE_CHECKING, Any

from ..render.console import text
from ..render.rows import print_rows, row_of
from ..render.table import Column

if TYPE_CHECKING:
    from diagevo.memory.audit.runs import RunStory

    from ..call import Call

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


def print_pass_rates(call: "Call", story: "RunStory") -> None:
    """Three tables; what they leave out is said, with the command that has it."""
    rates = story.pass_rates
    if rates is None:
        return
    rounds = [row_of(line) | _outcomes(line.verdicts) for line in story.rounds]
    steps, causes = rates.steps[-SHOWN:], rates.causes[:SHOWN]
    for columns, rows in ((ROUNDS, rounds), (STEPS, map(row_of, steps)), (CAUSES, map(row_of, causes))):
        if rows := list(rows):
            text(call, "")
            print_rows(call, columns, rows)
    run = story.line.run_id
    if hidden := len(rates.steps) - len(steps):
        text(call, f'{hidden} steps before: diagevo memory query "SELECT * FROM v_step" --run {run}')
    if hidden := len(rates.causes) - len(causes):
        text(call, f"{hidden} more causes: diagevo runs show {run} --json")


def _outcomes(verdicts: dict[str, int]) -> dict[str, Any]:
    return {"all_passed": verdicts.get("too_easy", 0), "all_failed": verdicts.get("too_hard", 0)}
